"""Answers of several Slurms' clients, captured by tests/fixtures/capture.py, and everything that reads such answers."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcddm.commands.sites.site_draft import SiteDraft, SlurmOutputs
from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.jobs.requeue_policy import JobEnd, parse_job
from hpcddm.launch.base import QueueFull, SubmissionRefused
from hpcddm.launch.slurm import launcher, queue_jobs, sacct, sbatch, slurm_cluster
from hpcddm.launch.slurm.launcher import SlurmLauncher
from hpcddm.launch.slurm.queue_jobs import QUEUE_FORMAT
from hpcddm.launch.slurm.sbatch import TRANSIENT, Sbatch
from hpcddm.launch.slurm.slurm_cluster import SlurmCluster, submit_limit
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Submission
from hpcddm.runs.run_dir import RunDir
from tests.fixtures.capture import NAME, OTHER, TOKEN

FOLDERS = sorted((Path(__file__).parents[2] / "fixtures").glob("slurm-*"))


@dataclass(frozen=True)
class Captured:
    """All answers of one version of Slurm."""

    folder: Path

    def process(self, name: str) -> subprocess.CompletedProcess:
        text = (self.folder / f"{name}.txt").read_text()
        pattern = r"\$ (.*)\nexit code (\d+)\n--- stdout\n(.*?)--- stderr\n(.*)"
        command, code, output, errors = re.fullmatch(pattern, text, re.DOTALL).groups()
        return subprocess.CompletedProcess(command, int(code), output, errors)

    def output(self, name: str) -> str:
        return self.process(name).stdout

    def ending(self, name: str, restart: int = 0) -> JobEnd:
        return JobEnd(143, parse_job(self.output(f"job-{name}")), restart, None, 30)


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def captured(request):
    return Captured(request.param)


@pytest.fixture
def slurm(tmp_path):
    return SlurmLauncher(Site(name="here", scheduler="slurm"), RunDir(tmp_path))


@pytest.fixture
def controller(captured, monkeypatch):
    """A cluster that answers as captured."""
    names = {"config": "config-enforced", "partition": "partitions", "assoc_mgr": "limits"}

    def query(*command, **_):
        name = next(name for word, name in names.items() if word in command)
        return captured.output(name)

    monkeypatch.setattr(slurm_cluster, "query_slurm", query)
    monkeypatch.setattr(slurm_cluster, "current_user", lambda: "alice")
    monkeypatch.setattr(slurm_cluster.os, "getuid", lambda: 1000)
    return SlurmCluster()


def test_what_the_controller_says_of_itself_and_of_its_partitions_and_associations(captured, controller, slurm):
    assert captured.folder.name == f"slurm-{controller.config['SLURM_VERSION']}"
    assert (controller.max_array, controller.max_jobs) == (1001, 10000)
    assert controller.config["AccountingStorageEnforce"] == "associations,limits"
    found = {one.name: (one.is_default, one.max_minutes, one.max_nodes) for one in controller.partitions.values()}
    assert found == {"main": (True, 60, 4), "high": (False, 60, 4)}
    for account, limit in ((None, 3), ("root", None)):
        site = slurm.site.model_copy(update={"account": account})
        assert submit_limit(controller.association_limits, site) == limit


def test_a_draft_of_the_site(captured):
    outputs = map(captured.output, ("config", "partitions", "nodes", "associations"))
    draft = SiteDraft(SlurmOutputs(*outputs, has_sacct=True), None)
    text = draft.text("drafted")
    assert draft.cluster == "home" and "partition: main" in text and "requeue: scontrol" in text
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\n", captured.output("end-time"))


def states(captured, slurm, monkeypatch, name):
    answer = captured.process(name)
    assert QUEUE_FORMAT in answer.args, "the format has changed: run tests/fixtures/capture.py again"
    monkeypatch.setattr(queue_jobs, "query_slurm", lambda *_, **__: answer.stdout)
    tokens = {TOKEN: ["a/0", "a/1"], "5e6f7a8b": ["b/0", "b/1"], "9c0d1e2f": ["c/0"]}
    found = slurm.states([Submission(token, "slurm", "here", units, 1.0, "tiny") for token, units in tokens.items()])
    return {unit: (job.state, job.nodes or job.reason) for unit, job in found.items()}


def test_the_queue(captured, slurm, monkeypatch):
    found = states(captured, slurm, monkeypatch, "queue")
    state, node = found.pop("a/0")
    assert state == "running" and re.fullmatch(r"h\d+", node)
    assert found == {
        "a/1": ("pending", "as many elements as allowed run already"),
        **dict.fromkeys(["b/0", "b/1"], ("held", "JobHeldUser")),
        "c/0": ("pending", "waits for the jobs before it"),
    }
    found = states(captured, slurm, monkeypatch, "queue-requeued")
    assert found["a/0"][0] == "pending" and found["a/1"][0] == "running"


ENDINGS = "signalled cancelled preempted time-limit requeued running running-again unknown".split()


def test_the_verdicts_view_of_a_job_that_ends(captured):
    endings = {name: captured.ending(name) for name in ENDINGS}
    assert [name for name in ENDINGS if endings[name].is_cancelled] == ["cancelled"]
    assert [name for name in ENDINGS if endings[name].is_preempted] == ["preempted"]
    assert [name for name in ENDINGS if endings[name].is_requeued] == ["requeued", "running-again"]
    assert not captured.ending("running-again", restart=1).is_requeued, "this is the second execution itself"
    job = endings["time-limit"].job
    assert (job["JobState"], job["Reason"]) == ("COMPLETING", "TimeLimit")
    for name, state in (("held", "PENDING"), ("suspended", "SUSPENDED"), ("completed", "COMPLETED")):
        assert captured.ending(name).job["JobState"] == state


def test_accounting(captured, monkeypatch):
    answer = captured.process("accounting")
    assert ",".join(sacct.FIELDS) in answer.args, "the fields have changed: run tests/fixtures/capture.py again"
    monkeypatch.setattr(sacct, "query_slurm", lambda *_, **__: answer.stdout)
    found = sacct.executions({None: [NAME, OTHER]}, 0)
    assert sorted(one.state for one in found) == ["CANCELLED", "CANCELLED", "COMPLETED", "FAILED", "REQUEUED"]
    (requeued,) = (one for one in found if one.state == "REQUEUED")
    assert requeued.job.endswith("_0") and requeued.token == TOKEN and requeued.seconds >= 3 and requeued.cpus == 1
    assert all(one.ended == one.started + one.seconds for one in found)


def submitted(captured, monkeypatch, name):
    monkeypatch.setattr(sbatch, "call_slurm", lambda *_, **__: captured.process(name))
    return Sbatch(Path("x.sbatch"), NAME, [], False).submit()


def test_what_sbatch_says_of_a_job_that_it_takes_or_refuses_or_has_no_room_for(captured, monkeypatch):
    assert re.fullmatch(r"\d+", submitted(captured, monkeypatch, "submitted"))
    assert captured.process("tested").returncode == 0
    for why in ("partition", "array", "constraint", "reservation"):
        with pytest.raises(SubmissionRefused, match="(?i)invalid|not available|not satisf") as told:
            submitted(captured, monkeypatch, f"submitted-{why}")
        assert not isinstance(told.value, QueueFull), why
    with pytest.raises(QueueFull, match="AssocMaxSubmitJobLimit"):
        submitted(captured, monkeypatch, "submitted-full")


def test_a_controller_that_is_down_is_worth_another_try(captured, monkeypatch):
    assert TRANSIENT.search(captured.process("submitted-no-controller").stderr)
    monkeypatch.setattr(sbatch, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(Sbatch, "_find", lambda self: "")
    with pytest.raises(UserError, match="no success"):
        submitted(captured, monkeypatch, "submitted-no-controller")


def test_cancelling_what_is_gone_is_no_mistake(captured, slurm, monkeypatch):
    for name in ("an-unknown-job", "unknown-elements", "an-ended-element"):
        monkeypatch.setattr(launcher, "call_slurm", lambda *_, name=name, **__: captured.process(f"cancel-of-{name}"))
        slurm.cancel(JobId("59999999_0"))


def test_a_requeue_that_came_true_already_is_told_by_the_word_that_the_script_looks_for(captured):
    assert "is pending" in captured.process("requeue-of-a-pending-job").stderr
    script = Path(__file__).parents[3] / "slurm/job.sbatch.j2"
    assert '*"is pending"*' in script.read_text()
