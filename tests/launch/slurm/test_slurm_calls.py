"""What is asked of Slurm's commands, and what their answers mean: states, cancelling, shapes, submitting."""

import os
import subprocess
from contextlib import nullcontext

import pytest
from submitit.core.utils import DelayedSubmission

from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.jobs.entry import run_element
from hpcddm.launch.base import ArraySpec, Job, clean_environment
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


@pytest.fixture
def launcher(tmp_path):
    return slurm_launcher.create(Site(name="here", scheduler="slurm"), RunDir(tmp_path))


def test_states_are_told_by_token_and_element_whoever_submitted(launcher, monkeypatch):
    asked = []
    monkeypatch.setattr(
        queue_jobs, "query_slurm", lambda *command: asked.append(command) or QUEUE.format("aaaabbbbcccc")
    )
    units = ["train/expert-00", "train/expert-01", "train/expert-02"]
    mine = Submission("aaaabbbbcccc", "slurm", "here", units, 1.0, "tiny-train", "81")
    assert launcher.states([mine]) == {
        "train/expert-00": Job(JobId("81_0"), "running", nodes="h[1-2]"),
        "train/expert-01": Job(JobId("81_1"), "pending", "waits for free nodes, may start 2026-11-20 14:05:00"),
        "train/expert-02": Job(JobId("92_2"), "pending", "Slurm lets it wait a while after a requeue"),
    }
    (command,) = asked
    assert "--name=tiny-train-aaaabbbbcccc" in command and not [word for word in command if "user" in word]


def test_a_job_that_is_no_array_is_known_by_its_bare_id(launcher, monkeypatch):
    line = "81|N/A|PENDING|Priority||N/A|tiny-train-aaaabbbbcccc\n"
    monkeypatch.setattr(queue_jobs, "query_slurm", lambda *command: line)
    mine = Submission("aaaabbbbcccc", "slurm", "here", ["train/expert-00"], 1.0, "tiny-train", "81")
    assert launcher.states([mine]) == {"train/expert-00": Job("81", "pending", "other jobs come first")}
    asked = []
    answer = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(slurm_launcher, "call_slurm", lambda *command: asked.append(command) or answer)
    launcher.cancel(JobId("81"), JobId("92_1"))
    assert asked == [("scancel", "81", "92_[1]")], (
        "an element of a plain job means nothing to scancel, not even an error"
    )


@pytest.mark.parametrize(
    "parameters, longest", [("a=b", 1001), ("x,max_array_tasks=5,y", 5), ("max_array_tasks=9999", 1001)]
)
def test_the_longest_array_is_the_smaller_of_two_limits(monkeypatch, parameters, longest):
    monkeypatch.setattr(SlurmCluster, "config", {"MaxArraySize": "1001", "SchedulerParameters": parameters})
    assert SlurmCluster().max_array == longest


def test_only_names_that_can_be_in_the_queue_are_asked_for(launcher, monkeypatch):
    asked = []
    monkeypatch.setattr(queue_jobs, "query_slurm", lambda *command: asked.append(command) or "")
    old = Submission("a" * 12, "slurm", "here", ["router/all"], 1.0, "t", "81")
    lost = Submission("b" * 12, "slurm", "here", ["router/all"], 2.0, "t")
    new = Submission("c" * 12, "slurm", "here", ["router/all"], 3.0, "t", "83")
    assert launcher.states([old, lost, new]) == {}
    assert f"--name=t-{'b' * 12},t-{'c' * 12}" in asked[0]


def test_no_answer_is_unknown_and_not_an_empty_queue(launcher, monkeypatch, tmp_path):
    one = [Submission("a" * 12, "slurm", "here", ["router/all"], 1.0, "t", "81")]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launcher.states(one) is None
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    assert launcher.states(one) is None


def test_cancelled_elements_go_in_one_call_and_those_that_ended_meanwhile_do_not_matter(launcher, monkeypatch):
    asked, said = [], ["scancel: error: Kill job error on job id 81_[0,2]: Job/step already completing or completed"]

    def call(*command):
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, "", said[0])

    monkeypatch.setattr(slurm_launcher, "call_slurm", call)
    launcher.cancel(JobId("81_0"), JobId("92_1"), JobId("81_2"))
    assert asked == [("scancel", "81_[0,2]", "92_[1]")]
    launcher.cancel()
    assert len(asked) == 1, "scancel without an id ends everything of this user"
    said[0] = "scancel: error: Kill job error on job id 81: Access/permission denied"
    with pytest.raises(UserError, match="permission denied"):
        launcher.cancel(JobId("81_0"))


PARTITIONS = {"main": SlurmPartition("main", True, 60, 4), "high": SlurmPartition("high", False, 1440, 2)}

REFUSED = {
    "partition": ({"partition": "nope"}, "invalid partition nope, there are main, high; change the site key partition"),
    "time": ({"resources": {"minutes": 61}}, "61 minutes, partition main allows 60; .* resources.minutes"),
    "time of a stage": ({"stages": {"train": {"minutes": 61}}}, "site key stages.train.minutes"),
    "time of a unit": ({"stages": {"train/expert-00": {"minutes": 61}}}, "site key stages.train/expert-00.minutes"),
    "nodes": ({"resources": {"nodes": 5}}, "5 nodes, partition main allows 4; change the site key resources.nodes"),
    "of its partition": ({"partition": "high", "resources": {"nodes": 3}}, "3 nodes, partition high allows 2"),
    "partition of a stage": ({"stages": {"train": {"partition": "nope"}}}, "site key stages.train.partition"),
}


@pytest.mark.parametrize("site, message", REFUSED.values(), ids=REFUSED)
def test_what_slurm_would_take_and_never_start_is_refused(tmp_path, monkeypatch, site, message):
    monkeypatch.setattr(SlurmCluster, "partitions", PARTITIONS)
    monkeypatch.setattr(slurm_launcher, "call_slurm", lambda *command, **options: pytest.fail("too late"))
    launcher = slurm_launcher.create(Site(**{"name": "here", "scheduler": "slurm", **site}), RunDir(tmp_path))
    array = ArraySpec("tiny-train", ["train/expert-00"], [], launcher.site.resources_for("train", "expert-00"), [], 1)
    with pytest.raises(UserError, match=message):
        launcher.check([array])


FINE = {
    "default": {},
    "longest": {"resources": {"minutes": 60, "nodes": 4}},
    "the other one": {"partition": "high", "resources": {"minutes": 1440}},
    "either": {"partition": "main,high", "resources": {"minutes": 1440, "nodes": 4}},
    "a QOS may lift the limits": {"qos": "long", "resources": {"minutes": 5000}},
}


@pytest.mark.parametrize("site", FINE.values(), ids=FINE)
def test_what_a_partition_allows_is_left_to_sbatch_to_judge(tmp_path, monkeypatch, site):
    scripts = []
    good = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(SlurmCluster, "partitions", PARTITIONS)
    monkeypatch.setattr(slurm_launcher, "call_slurm", lambda *command, script: scripts.append(script) or good)
    launcher = slurm_launcher.create(Site(**{"name": "here", "scheduler": "slurm", **site}), RunDir(tmp_path))
    shape = launcher.site.resources_for("train")
    launcher.check([ArraySpec("tiny-train", [f"train/expert-0{index}"], [], shape, [], 1) for index in range(3)])
    assert len(scripts) == 1, "one call for each shape, not for each array"


def test_one_pickle_and_one_map_serve_an_array_and_are_there_before_sbatch(tmp_path, monkeypatch):
    run = RunDir(tmp_path)
    launcher = slurm_launcher.create(Site(name="here", scheduler="slurm", has_sacct=False), run)
    specs = [run.spec(f"train/expert-0{index}") for index in range(3)]
    resources = launcher.site.resources_for("train")
    array = ArraySpec("tiny-train", ["a", "b", "c"], specs, resources, [JobId("5"), JobId("6")], 3)
    seen = []

    def call(*command, variables):
        assert variables == {}, "a run without a contract has no key"
        seen.append((command, sorted(path.name for path in run.jobs.iterdir())))
        return subprocess.CompletedProcess(command, 0, "77;cluster\n", "")

    monkeypatch.setattr(sbatch, "call_slurm", call)
    assert launcher.submit(array, "aaaabbbbcccc", "0001-train.sbatch") == "77"
    ((command, files),) = seen
    assert files == ["aaaabbbbcccc.json", "aaaabbbbcccc.pkl"]
    assert command == (
        "sbatch",
        "--parsable",
        "--job-name=tiny-train-aaaabbbbcccc",
        "--dependency=afterany:5:6",
        str(run.scripts / "0001-train.sbatch"),
    )
    function = DelayedSubmission.load(run.jobs / "aaaabbbbcccc.pkl").function
    assert (function.func, function.args) == (run_element, (str(run.jobs / "aaaabbbbcccc.json"),))


@pytest.fixture
def precious(tmp_path):
    """A file of the user's outside of the run."""
    path = tmp_path / "precious"
    path.write_text("precious")
    return path


KINDS = {
    "a hard link": (os.link, "has another name, too (a hard link)"),
    "a link": (lambda target, path: path.symlink_to(target), "is a link"),
    "a pipe": (lambda target, path: os.mkfifo(path), "is not a file"),
}


@pytest.mark.parametrize("place", ["77_0.out", "77_0_0.out", "east/77_0_0_result.pkl.save_tmp", "77_0.0.srun"])
@pytest.mark.parametrize("make, reason", KINDS.values(), ids=KINDS)
def test_what_slurm_would_write_to_behind_its_name_is_refused_before_anything(
    tmp_path, monkeypatch, precious, make, reason, place
):
    monkeypatch.setattr(SlurmCluster, "partitions", property(lambda self: pytest.fail("too late")))
    run = RunDir(tmp_path / "run")
    path = run.jobs / place
    path.parent.mkdir(parents=True)
    make(precious, path)
    launcher = slurm_launcher.create(Site(name="here", scheduler="slurm"), run)
    with pytest.raises(UserError) as error:
        launcher.check([ArraySpec("tiny-train", ["train/expert-00"], [], launcher.site.resources_for("train"), [], 1)])
    assert str(error.value).startswith(f"{path}: {reason}" if reason != "is a link" else f"{path} is a link")
    assert "\n" not in str(error.value) and precious.read_text() == "precious"


def test_what_an_earlier_submission_left_is_no_reason_to_refuse(tmp_path, monkeypatch):
    monkeypatch.setattr(SlurmCluster, "partitions", PARTITIONS)
    monkeypatch.setattr(
        slurm_launcher, "call_slurm", lambda *command, script: subprocess.CompletedProcess([], 0, "", "")
    )
    jobs = RunDir(tmp_path).jobs
    (jobs / "east").mkdir(parents=True)
    for name in ("77_0.out", "aaaabbbbcccc.json", "aaaabbbbcccc.pkl", "never.stop"):
        (jobs / name).write_text("")
    for folder in (jobs, jobs / "east"):
        (folder / "77_0_submitted.pkl").symlink_to(jobs / "aaaabbbbcccc.pkl")
    launcher = slurm_launcher.create(Site(name="here", scheduler="slurm"), RunDir(tmp_path))
    launcher.check([ArraySpec("tiny-train", ["train/expert-00"], [], launcher.site.resources_for("train"), [], 1)])


@pytest.mark.parametrize("words, is_refused", [("QOSMaxSubmitJobPerUserLimit", False), ("Invalid account", True)])
def test_a_queue_that_is_full_now_is_no_reason_to_refuse_a_shape(launcher, monkeypatch, words, is_refused):
    monkeypatch.setattr(SlurmCluster, "partitions", PARTITIONS)
    answer = subprocess.CompletedProcess([], 1, "", f"sbatch: error: {words}\nallocation failure: Job violates policy")
    monkeypatch.setattr(slurm_launcher, "call_slurm", lambda *command, script: answer)
    array = ArraySpec("tiny-train", ["train/expert-00"], [], launcher.site.resources_for("train"), [], 1)
    with pytest.raises(UserError, match="sbatch would refuse tiny-train: .*Invalid") if is_refused else nullcontext():
        launcher.check([array])


def test_a_check_that_takes_too_long_is_a_warning_and_the_rest_is_not_asked_for(launcher, monkeypatch, capsys):
    monkeypatch.setattr(SlurmCluster, "partitions", PARTITIONS)
    asked = []

    def call(*command, script):
        asked.append(command)
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(slurm_launcher, "call_slurm", call)
    shapes = [launcher.site.resources.model_copy(update={"nodes": nodes}) for nodes in (1, 2)]
    launcher.check([ArraySpec("tiny-train", ["train/expert-00"], [], shape, [], 1) for shape in shapes])
    assert (
        len(asked) == 1 and "gave no answer in 60 s; the shape of tiny-train is not checked" in capsys.readouterr().err
    )


def test_the_users_own_filters_hide_no_job_from_us(monkeypatch):
    monkeypatch.setenv("SQUEUE_STATES", "R")
    monkeypatch.setenv("SACCT_FORMAT", "jobid")
    monkeypatch.setenv("SCANCEL_STATE", "RUNNING")
    assert not [name for name in clean_environment() if name.startswith(("SQUEUE_", "SACCT_", "SCANCEL_"))]
