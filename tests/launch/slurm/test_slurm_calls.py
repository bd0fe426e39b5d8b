"""What is asked of Slurm's commands, and what their answers mean: states, cancelling, shapes, submitting."""

import os
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.launch.base import ArraySpec, Job
from hpcddm.launch.slurm import launcher as slurm_launcher
from hpcddm.launch.slurm import queue_jobs, sbatch
from hpcddm.launch.slurm.slurm_cluster import SlurmCluster, SlurmPartition
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Submission
from hpcddm.runs.run_dir import RunDir

QUEUE = """\
81|0|RUNNING|None|h[1-2]|2026-11-20T08:00:00|tiny-train-{0}
81|1|PENDING|Resources||2026-11-20T14:05:00|tiny-train-{0}
92|2|PENDING|BeginTime||N/A|tiny-train-{0}
81|7|RUNNING|None|h3|2026-11-20T08:00:00|tiny-train-{0}
95|0|RUNNING|None|h4|2026-11-20T08:00:00|other-train-0123456789ab
96|N/A|RUNNING|None|h4|2026-11-20T08:00:00|bash
"""
TOKEN = "aaaabbbbcccc"
PARTITIONS = {"main": SlurmPartition("main", True, 60, 4), "high": SlurmPartition("high", False, 1440, 2)}


def create(folder, **site):
    return slurm_launcher.create(Site(**{"name": "here", "scheduler": "slurm", **site}), RunDir(folder))


@pytest.fixture
def launcher(tmp_path):
    return create(tmp_path)


def array(launcher, number=0, shape=None):
    """An array of one training."""
    shape = shape or launcher.site.resources_for("train", f"expert-0{number}")
    return ArraySpec("tiny-train", [f"train/expert-0{number}"], [], shape, [], 1)


def submission(units, token=TOKEN, time=1.0, name="tiny-train", job="81"):
    return Submission(token, "slurm", "here", units, time, name, job)


@pytest.fixture
def asked(monkeypatch):
    """Commands of Slurm that were called, behind the answer to all of them and the keywords of each."""
    calls = SimpleNamespace(commands=[], keywords=[], code=0, errors="", queue="")

    def call(*command, **keywords):
        calls.commands.append(command)
        calls.keywords.append(keywords)
        return subprocess.CompletedProcess(command, calls.code, "77;cluster\n", calls.errors)

    monkeypatch.setattr(slurm_launcher, "call_slurm", call)
    monkeypatch.setattr(sbatch, "call_slurm", call)
    monkeypatch.setattr(queue_jobs, "query_slurm", lambda *command: calls.commands.append(command) or calls.queue)
    monkeypatch.setattr(SlurmCluster, "partitions", PARTITIONS)
    return calls


def test_states_are_told_by_token_and_element_whoever_submitted(launcher, asked):
    asked.queue = QUEUE.format(TOKEN)
    assert launcher.states([submission([f"train/expert-0{number}" for number in range(3)])]) == {
        "train/expert-00": Job(JobId("81_0"), "running", nodes="h[1-2]"),
        "train/expert-01": Job(JobId("81_1"), "pending", "waits for free nodes, may start 2026-11-20 14:05:00"),
        "train/expert-02": Job(JobId("92_2"), "pending", "Slurm lets it wait a while after a requeue"),
    }
    (command,) = asked.commands
    assert f"--name=tiny-train-{TOKEN}" in command and not [word for word in command if "user" in word]


def test_a_job_that_is_no_array_is_known_by_its_bare_id(launcher, asked):
    asked.queue = f"81|N/A|PENDING|Priority||N/A|tiny-train-{TOKEN}\n"
    assert launcher.states([submission(["a"])]) == {"a": Job("81", "pending", "other jobs come first")}
    launcher.cancel(JobId("81"), JobId("92_1"))
    words = "an element of a plain job means nothing to scancel, not even an error"
    assert asked.commands[1:] == [("scancel", "81", "92_[1]")], words


def test_the_longest_array_is_the_smaller_of_two_limits(monkeypatch):
    for parameters, longest in (("a=b", 1001), ("x,max_array_tasks=5,y", 5), ("max_array_tasks=9999", 1001)):
        monkeypatch.setattr(SlurmCluster, "config", {"MaxArraySize": "1001", "SchedulerParameters": parameters})
        assert SlurmCluster().max_array == longest, parameters


def test_no_answer_is_unknown_and_not_an_empty_queue(launcher, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launcher.states([submission(["router/all"])]) is None
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    assert launcher.states([submission(["router/all"])]) is None


def test_cancelled_elements_go_in_one_call_and_those_that_ended_meanwhile_do_not_matter(launcher, asked):
    asked.code, error = 1, "scancel: error: Kill job error on job id 81"
    asked.errors = f"{error}_[0,2]: Job/step already completing or completed"
    launcher.cancel(JobId("81_0"), JobId("92_1"), JobId("81_2"))
    launcher.cancel()
    only = "scancel without an id ends everything of this user"
    assert asked.commands == [("scancel", "81_[0,2]", "92_[1]")], only
    asked.errors = f"{error}: Access/permission denied"
    with pytest.raises(UserError, match="permission denied"):
        launcher.cancel(JobId("81_0"))


REFUSED = {
    "partition": ({"partition": "nope"}, "invalid partition nope, there are main, high; change the site key partition"),
    "time": ({"resources": {"minutes": 61}}, "61 minutes are above the time limit of main, 60; .* resources.minutes"),
    "time of a stage": ({"stages": {"train": {"minutes": 61}}}, "site key stages.train.minutes"),
    "time of a unit": ({"stages": {"train/expert-00": {"minutes": 61}}}, "site key stages.train/expert-00.minutes"),
    "nodes": ({"resources": {"nodes": 5}}, "5 nodes, partition main allows 4; change the site key resources.nodes"),
    "of its partition": ({"partition": "high", "resources": {"nodes": 3}}, "3 nodes, partition high allows 2"),
    "partition of a stage": ({"stages": {"train": {"partition": "nope"}}}, "site key stages.train.partition"),
}


@pytest.mark.parametrize("site, message", REFUSED.values(), ids=REFUSED)
def test_what_slurm_would_take_and_never_start_is_refused(tmp_path, asked, site, message):
    launcher = create(tmp_path, **site)
    with pytest.raises(UserError, match=message):
        launcher.check([array(launcher)])
    assert not asked.commands, "too late"


FINE = {
    "default": {},
    "longest": {"resources": {"minutes": 60, "nodes": 4}},
    "the other one": {"partition": "high", "resources": {"minutes": 1440}},
    "either": {"partition": "main,high", "resources": {"minutes": 1440, "nodes": 4}},
    "a QOS may lift the limits": {"qos": "long", "resources": {"minutes": 5000}},
}


@pytest.mark.parametrize("site", FINE.values(), ids=FINE)
def test_what_a_partition_allows_is_left_to_sbatch_to_judge(tmp_path, asked, site):
    launcher = create(tmp_path, **site)
    launcher.check([array(launcher, number) for number in range(3)])
    assert [*asked.keywords[0]] == ["script"] and len(asked.commands) == 1, "one call for a shape, not for each array"


KINDS = {
    "a hard link": (os.link, ": has another name, too (a hard link)"),
    "a link": (lambda target, path: path.symlink_to(target), " is a link"),
    "a pipe": (lambda target, path: os.mkfifo(path), ": is not a file"),
}


@pytest.mark.parametrize("place", ["77_0.out", "77_0_0.out", "east/77_0_0_result.pkl.save_tmp", "77_0.0.srun"])
@pytest.mark.parametrize("make, reason", KINDS.values(), ids=KINDS)
def test_what_slurm_would_write_to_behind_its_name_is_refused_before_anything(tmp_path, asked, make, reason, place):
    launcher, precious = create(tmp_path / "run"), tmp_path / "precious"
    precious.write_text("precious")
    path = launcher.run.jobs / place
    path.parent.mkdir(parents=True)
    make(precious, path)
    with pytest.raises(UserError) as error:
        launcher.check([array(launcher)])
    assert str(error.value).startswith(f"{path}{reason}") and not asked.commands
    assert "\n" not in str(error.value) and precious.read_text() == "precious"


@pytest.mark.parametrize("words, is_refused", [("QOSMaxSubmitJobPerUserLimit", False), ("Invalid account", True)])
def test_a_queue_that_is_full_now_is_no_reason_to_refuse_a_shape(launcher, asked, words, is_refused):
    asked.code, asked.errors = 1, f"sbatch: error: {words}\nallocation failure: Job violates policy"
    with pytest.raises(UserError, match="sbatch would refuse tiny-train: .*Invalid") if is_refused else nullcontext():
        launcher.check([array(launcher)])


def test_a_check_that_takes_too_long_is_a_warning_and_the_rest_is_not_asked_for(launcher, asked, monkeypatch, capsys):
    def call(*command, script):
        asked.commands.append(command)
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(slurm_launcher, "call_slurm", call)
    shapes = [launcher.site.resources.model_copy(update={"nodes": nodes}) for nodes in (1, 2)]
    launcher.check([array(launcher, shape=shape) for shape in shapes])
    words = "gave no answer in 60 s; the shape of tiny-train is not checked"
    assert len(asked.commands) == 1 and words in capsys.readouterr().err
