"""sbatch that fails, hangs and dies: one job at the end, or none and a clear word, and never two."""

import subprocess

import pytest

from hpcddm.errors import SchedulerUnreachable, UserError
from hpcddm.launch.base import QueueFull
from hpcddm.launch.slurm import sbatch
from hpcddm.launch.slurm.client import SlurmUnavailable
from hpcddm.launch.slurm.sbatch import PAUSES, Sbatch

TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
DOWN = "sbatch: error: Unable to contact slurm controller"
FULL = "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates the policy"


class FakeCluster:
    """Answers sbatch as told, call by call; `late` jobs show in the queue only at the n-th look."""

    def __init__(self, *answers, late=None, silent=0, in_sacct=()):
        self.answers, self.late, self.silent, self.in_sacct = list(answers), late or {}, silent, in_sacct
        self.jobs, self.calls, self.polls, self.ended, self.slept = [], 0, 0, [], []

    def call(self, *command, variables=None):
        if command[0] == "scancel":
            self.ended += command[1:]
            return subprocess.CompletedProcess(command, 0, "", "")
        self.calls += 1
        accepted, how = self.answers.pop(0)
        if accepted:
            self.jobs.append(str(100 + self.calls))
        if how == "hangs":
            raise subprocess.TimeoutExpired(command, 60)
        known = {"killed": (-9, "", ""), "babbles": (0, "welcome\n", ""), "fine": (0, f"{100 + self.calls};home\n", "")}
        return subprocess.CompletedProcess(command, *known.get(how, (1, "", how)))

    def query(self, *command):
        if command[0] == "sacct":
            return "".join(f"{job}_0\n{job}_[1-3%2]\n" for job in self.in_sacct)
        self.polls += 1
        if self.polls <= self.silent:
            raise SlurmUnavailable("no answer")
        assert "--name=tiny-train-abc" in command and "--states=all" in command
        return "".join(f"{job}\n{job}\n" for job in self.jobs if self.polls >= self.late.get(job, 0))


@pytest.fixture
def submit(monkeypatch, tmp_path):
    """Submit to such a cluster; returns the job."""

    def submitted(cluster, has_sacct=False):
        monkeypatch.setattr(sbatch, "call_slurm", cluster.call)
        monkeypatch.setattr(sbatch, "query_slurm", cluster.query)
        monkeypatch.setattr(sbatch.time, "sleep", cluster.slept.append)
        monkeypatch.setattr(sbatch.time, "monotonic", lambda: sum(cluster.slept))
        return Sbatch(tmp_path / "x.sbatch", "tiny-train-abc", [], has_sacct).submit()

    return submitted


@pytest.mark.parametrize("how", ["hangs", "killed", "babbles", TIMED_OUT])
@pytest.mark.parametrize("more", [{}, {"late": {"101": 5}}, {"silent": 3}], ids=["at once", "underway", "silent"])
def test_what_was_accepted_without_an_answer_is_found_and_not_submitted_again(submit, how, more):
    cluster = FakeCluster((True, how), **more)
    assert submit(cluster) == "101" and cluster.calls == 1 and sum(cluster.slept) < 10


@pytest.mark.parametrize("how", ["hangs", "killed", TIMED_OUT, DOWN])
def test_what_was_not_accepted_is_submitted_again_after_a_while(submit, how):
    cluster = FakeCluster((False, how), (False, how), (True, "fine"))
    assert submit(cluster) == "103" and cluster.calls == 3
    assert sum(cluster.slept) >= PAUSES[0] + PAUSES[1]


def test_two_that_were_accepted_in_the_end_become_one(submit):
    """The first request arrives only after it was given up for lost."""
    cluster = FakeCluster((True, TIMED_OUT), (True, "fine"), late={"101": 9})
    assert submit(cluster) == "102" and cluster.ended == ["101"]


def test_a_job_that_has_left_the_queue_is_found_in_the_accounting(submit):
    cluster = FakeCluster((False, "killed"), in_sacct=["88"])
    assert submit(cluster, has_sacct=True) == "88" and cluster.calls == 1


NOPE = "sbatch: error: invalid partition specified: nope"
SILENT, NO_SUCCESS = "found by its name and not submitted twice", "no success with .*x.sbatch: .*Socket timed out"
FAILURES = {
    "nobody can say whether it was accepted": ([(True, TIMED_OUT)], {"silent": 1000}, SchedulerUnreachable, SILENT, 1),
    "patience ends": ([(False, TIMED_OUT)] * 9, {}, SchedulerUnreachable, NO_SUCCESS, len(PAUSES) + 1),
    "a plain refusal": ([(False, NOPE)], {}, UserError, "sbatch refused .*x.sbatch: .*invalid partition", 1),
    "full for now": ([(False, FULL)], {}, QueueFull, "Slurm says AssocMaxSubmitJobLimit", 1),
}


@pytest.mark.parametrize("answers, more, error, words, calls", FAILURES.values(), ids=FAILURES)
def test_what_cannot_be_submitted_is_told_and_never_submitted_twice(submit, answers, more, error, words, calls):
    cluster = FakeCluster(*answers, **more)
    with pytest.raises(error, match=words):
        submit(cluster)
    assert cluster.calls == calls and (cluster.polls == 0 or TIMED_OUT in answers[0])


def test_a_node_without_sbatch_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="sbatch cannot be run: No such file or directory; submit from a login node"):
        Sbatch(tmp_path / "x.sbatch", "tiny-train-abc", [], False).submit()
