"""The verb wait, and the exit code of status: what scripts and CI can rely on."""

import threading
import time

import pytest

from hpcddm.commands import run_status
from hpcddm.commands import wait as waiting
from hpcddm.launch.base import Job
from hpcddm.runs.job import JobId
from hpcddm.runs.unit_keys import expert_key
from tests.attempts import answer, beat, submitted, write_attempt
from tests.commands.runs import complete_run
from tests.helpers import hpcddm

EXPERT = expert_key(1)
VERDICT = {"decision": "failed", "reason": "the loss is nan", "exit_code": 1, "started": 0.0, "ended": 1.0}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that is complete but for one expert, which went through Slurm."""
    monkeypatch.setattr(waiting, "READ_SECONDS", 0.05)
    run = complete_run(tmp_path / "run")
    (run.unit(EXPERT) / "manifest.json").rename(run.unit(EXPERT) / "kept.json")
    return run


def complete(run):
    (run.unit(EXPERT) / "kept.json").rename(run.unit(EXPERT) / "manifest.json")


def ended(run, code, *options):
    """What wait and status say, with the code that both end with."""
    status = hpcddm("status", run.root, "--exit-code")
    done = hpcddm("wait", run.root, *options)
    assert (status.exit_code, done.exit_code) == (code, code), done.output
    return done


def test_a_complete_run_is_no_wait(run):
    complete(run)
    assert "units complete" in ended(run, 0).stdout


def test_a_run_that_fails_is_left_with_what_to_type(run, monkeypatch):
    answer(monkeypatch, {})
    write_attempt(run, EXPERT, 1, submitted(run, [EXPERT]), "17_0", verdict=VERDICT)
    assert f"nothing goes on by itself; next: hpcddm logs {run.root} {EXPERT}" in ended(run, 3).stderr


@pytest.mark.parametrize("state", ["pending", "running", "suspended"])
def test_jobs_are_waited_for_until_the_time_is_over(run, monkeypatch, state):
    answer(monkeypatch, {EXPERT: Job(JobId("17_0"), state, nodes="h1")})
    write_attempt(run, EXPERT, 1, submitted(run, [EXPERT]), "17_0", heartbeat=beat())
    assert "the time is over and jobs wait or run" in ended(run, 5, "--timeout", "0.001").stderr


def test_a_scheduler_that_does_not_answer_is_no_end(run, monkeypatch):
    asked = answer(monkeypatch, None)
    monkeypatch.setattr(run_status, "QUERY_SECONDS", 0.01)
    submitted(run, [EXPERT])
    done = ended(run, 4, "--timeout", "0.01")
    assert "the scheduler does not answer" in done.stderr and len(asked) > 2


def test_what_becomes_complete_ends_the_wait(run, monkeypatch):
    answer(monkeypatch, {EXPERT: Job(JobId("17_0"), "running", nodes="h1")})
    submitted(run, [EXPERT])
    timer = threading.Timer(0.3, complete, [run])
    timer.start()
    started = time.monotonic()
    done = hpcddm("wait", run.root)
    timer.join()
    lines = done.stdout.splitlines()
    assert (done.exit_code, len(lines)) == (0, 2) and "1 starting" in lines[0], done.output
    assert time.monotonic() - started < 20


def test_a_moment_between_two_jobs_is_no_end(run, monkeypatch):
    jobs = iter([{}, {EXPERT: Job(JobId("17_0"), "running", nodes="h1")}])
    write_attempt(run, EXPERT, 1, submitted(run, [EXPERT]), "17_0", verdict=VERDICT)
    answers = []
    monkeypatch.setattr(run_status, "QUERY_SECONDS", 0.1)
    states = "hpcddm.launch.slurm.launcher.SlurmLauncher.states"
    monkeypatch.setattr(states, lambda *given: answers.append(1) or next(jobs, {}))
    assert hpcddm("wait", run.root).exit_code == 3 and len(answers) >= 2


def test_ctrl_c_leaves_the_jobs_alone(run, monkeypatch):
    answer(monkeypatch, {EXPERT: Job(JobId("17_0"), "running", nodes="h1")})
    submitted(run, [EXPERT])
    cancelled = []
    monkeypatch.setattr("hpcddm.launch.slurm.launcher.SlurmLauncher.cancel", lambda self, *jobs: cancelled.append(jobs))
    monkeypatch.setattr(waiting.time, "sleep", lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt))
    done = hpcddm("wait", run.root)
    assert done.exit_code == 130 and "jobs in a queue continue; next: hpcddm wait" in done.stderr and cancelled == []


def test_where_there_is_no_run_there_is_nothing_to_wait_for(tmp_path):
    assert hpcddm("wait", tmp_path / "nowhere").exit_code == 2
