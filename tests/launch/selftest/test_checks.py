"""Verdicts from what jobs left behind, for everything that goes wrong on clusters other than the testbed."""

import importlib
import json
import re
from pathlib import Path

import pytest

from hpcddm.config.site import Site
from hpcddm.launch.selftest import node
from hpcddm.launch.selftest.check_results import CheckVerdict
from hpcddm.launch.selftest.checks import accounting, requeue
from hpcddm.launch.selftest.checks.accounting import Accounting
from hpcddm.launch.selftest.checks.array import Array
from hpcddm.launch.selftest.checks.base import Check
from hpcddm.launch.selftest.checks.collective import Collective
from hpcddm.launch.selftest.checks.environment import Environment
from hpcddm.launch.selftest.checks.gpus import Gpus
from hpcddm.launch.selftest.checks.rendezvous import Rendezvous
from hpcddm.launch.selftest.checks.requeue import Requeue
from hpcddm.launch.selftest.checks.signals import Signals
from hpcddm.launch.selftest.checks.storage import Storage
from hpcddm.launch.selftest.checks.time_left import TimeLeft
from hpcddm.launch.selftest.evidence import Evidence
from tests.helpers import REPOSITORY

STARTED = 1_000_000.0
LIMIT = 7
"""Minutes of the jobs: 5, and the two of the site's signal_lead_seconds."""
GOOD_PLACE = {
    "python": "/usr/bin/python", "version": "3.11.7", "hpcddm": "0.1", "missing": [], "host": "h1",
    "cores": [0, 1, 2, 3, 8], "threads": "4", "time": STARTED + 2, "gpus": 0,
}  # fmt: skip
GOOD_STORAGE = {"seconds": 0.1, "torn": [], "locks": "good"}


@pytest.fixture
def evidence(tmp_path: Path, site: Site) -> Evidence:
    """Both parts were submitted, and left nothing so far."""
    (tmp_path / "submitted").touch()
    return Evidence(site, tmp_path, {"array": "7", "nodes": "8"})


def start(evidence: Evidence, name: str, **files: object) -> Path:
    """One start of one element, such as 'array-7_0.0', with the files that it left; '__' in a name is a dot."""
    folder = evidence.folder / name
    folder.mkdir()
    for key, value in {"started": STARTED, "setup__done": "", "done": "", **files}.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / key.replace("__", ".")).write_text(text)
    return folder


def with_site(evidence: Evidence, **changes: object) -> Evidence:
    site = Site.model_validate(evidence.site.model_dump() | changes)
    return Evidence(site, evidence.folder, evidence.submitted, evidence.waiting)


def test_what_still_waits_is_not_run_and_says_why(evidence):
    evidence.waiting["array"] = evidence.waiting["nodes"] = "pending because (Resources)"
    for check in (Array(), Rendezvous(), Signals(), Requeue(), Storage(), Environment()):
        row = check.evaluate(evidence)
        assert (row.verdict, row.finding) == (CheckVerdict.NOT_RUN, "pending because (Resources)"), row
        assert "--timeout" in row.advice


def test_jobs_without_a_trace_are_a_folder_that_the_nodes_do_not_see(evidence):
    for check in (Array(), Rendezvous(), Storage(), Environment()):
        row = check.evaluate(evidence)
        assert row.verdict is CheckVerdict.FAIL and "--folder, on a shared file system" in row.advice, row


def test_an_element_that_started_twice_was_preempted_or_taken_along(evidence):
    for name in ("array-7_0.0", "array-7_1.0", "array-7_2.0", "array-7_0.1"):
        start(evidence, name)
    row = Array().evaluate(evidence)
    assert row.verdict is CheckVerdict.WARN and "element 0 started again" in row.finding
    (evidence.folder / "array-7_2.0/requeue.exit").write_text("0\n")
    start(evidence, "array-7_2.1")
    row = Requeue().evaluate(evidence)
    assert row.verdict is CheckVerdict.FAIL and "took 7_0 along" in row.finding and "requeue: resubmit" in row.advice


def test_a_requeue_that_is_accepted_and_never_comes_is_no_requeue(evidence):
    start(evidence, "array-7_2.0", requeue__exit="0")
    assert "requeue: resubmit" in Requeue().evaluate(evidence).advice
    assert "requeue: none" in Requeue().evaluate(with_site(evidence, requeue="resubmit")).advice
    evidence.waiting["array"] = "pending because (BeginTime)"
    row = Requeue().evaluate(evidence)
    assert row.verdict is CheckVerdict.NOT_RUN and "BeginTime" in row.finding and not requeue.is_settled(evidence)


def test_a_client_that_died_with_its_job_was_not_refused(evidence):
    """The order to requeue can end the job before scontrol has said that all is well."""
    start(evidence, "array-7_2.0", requeue__exit="143")
    assert not requeue.is_settled(evidence)
    start(evidence, "array-7_2.1", started=STARTED + 125)
    assert requeue.is_settled(evidence)
    row = Requeue().evaluate(evidence)
    assert (row.verdict, row.seconds) == (CheckVerdict.OK, 125)


@pytest.mark.parametrize(
    ("way", "files", "advice"),
    [
        ("scontrol", {"sbatch__exit": "0"}, "set requeue: resubmit"),
        ("scontrol", {"sbatch__exit": "1", "sbatch__said": "no route"}, "set requeue: none .*no route"),
        ("resubmit", {}, "set requeue: none"),
    ],
)
def test_a_refused_way_back_names_the_next_one_that_works(evidence, way, files, advice):
    start(evidence, "array-7_2.0", requeue__exit="1", requeue__said="Operation not permitted", **files)
    row = Requeue().evaluate(with_site(evidence, requeue=way))
    assert row.verdict is CheckVerdict.FAIL and "Operation not permitted" in row.finding
    assert re.search(advice, row.advice), row.advice


def test_a_wrapper_that_is_deaf_is_told_from_one_that_dies(evidence):
    ready = {"USR2__ready__json": {}, "TERM__ready__json": {}, "USR2__exit": "0", "TERM__exit": "0"}
    folder = start(evidence, "array-7_1.0", **ready, USR2__json={"came": None}, TERM__json={"came": STARTED})
    row = Signals().evaluate(evidence)
    assert row.finding == "USR2 did not reach Python" and "deadline" in row.advice and "exec" in row.advice
    (folder / "USR2.json").unlink()
    (folder / "USR2.exit").write_text("140")
    row = Signals().evaluate(evidence)
    assert "died of it (exit 140)" in row.finding and "last checkpoint" in row.advice
    (folder / "USR2.refused").write_text("scancel: access denied")
    assert Signals().evaluate(evidence).verdict is CheckVerdict.WARN


@pytest.mark.parametrize(
    ("changes", "verdict", "seen"),
    [
        ({}, CheckVerdict.OK, "cores 0-3,8 on h1"),
        ({"missing": ["torch"]}, CheckVerdict.FAIL, "/usr/bin/python has no torch"),
        ({"cores": [5]}, CheckVerdict.FAIL, "bound to 1 cores, 4 requested"),
        ({"threads": None}, CheckVerdict.WARN, "OMP_NUM_THREADS=None, 4 requested"),
    ],
)
def test_the_environment(evidence, changes, verdict, seen):
    start(evidence, "array-7_0.0", environment__json=GOOD_PLACE | changes)
    row = Environment().evaluate(evidence)
    assert row.verdict is verdict and seen in row.finding, row
    assert bool(row.advice) == (verdict is not CheckVerdict.OK)


def test_variables_of_another_allocation_are_named(evidence):
    start(evidence, "array-7_0.0", environment__json=GOOD_PLACE, variables="SLURM_CPU_BIND=x\nHOME=/\nSRUN_DEBUG=3\n")
    row = Environment().evaluate(evidence)
    assert row.verdict is CheckVerdict.WARN and "SLURM_CPU_BIND, SRUN_DEBUG" in row.finding


@pytest.mark.parametrize("sees", [2, "none: torch 2.13 is built for CPUs only", "ImportError: libcudart.so.12"])
def test_gpus_that_torch_does_not_see_fail(evidence, sees):
    evidence = with_site(evidence, resources={"cpus_per_rank": 4, "gpus_per_node": 4})
    start(evidence, "array-7_0.0", environment__json=GOOD_PLACE | {"gpus": sees})
    row = Environment().evaluate(evidence)
    assert row.verdict is CheckVerdict.FAIL and f"torch sees {sees}" in row.finding and "gpu_type" in row.advice


def summed(evidence: Evidence, *answers: dict, meet: str = "0") -> None:
    """What two ranks on two nodes left of the collective."""
    good = {"device": "cpu", "backend": "gloo", "seconds": 0.5, "message": ""}
    files = {
        f"collective__{rank}__json": good | {"rank": rank, "node": f"h{rank + 1}"} | answer
        for rank, answer in enumerate(answers)
    }
    start(evidence, "nodes-8_0.0", meet__exit=meet, **files)


def test_the_collective_tells_its_rate(evidence):
    summed(evidence, {}, {"seconds": 0.64})
    row = Collective().evaluate(evidence)
    assert (row.verdict, row.finding) == (CheckVerdict.OK, "gloo sums 64 MB over 2 ranks at 0.10 GB/s per rank")
    assert Gpus().evaluate(evidence).finding == "train asks for none"


def test_a_collective_that_fails_says_why_and_one_that_was_not_tried_does_not(evidence):
    summed(evidence, {}, {"message": "Connection closed by peer\nmore", "seconds": None})
    row = Collective().evaluate(evidence)
    assert row.verdict is CheckVerdict.FAIL and row.finding == "Connection closed by peer"
    assert "NCCL_SOCKET_IFNAME" in row.advice
    (evidence.folder / "nodes-8_0.0/meet.exit").write_text("1")
    assert Collective().evaluate(evidence).verdict is CheckVerdict.NOT_RUN


def test_a_collective_without_the_answer_of_one_rank_fails(evidence):
    summed(evidence, {})
    (evidence.folder / "nodes-8_0.0/collective.exit").write_text("137")
    row = Collective().evaluate(evidence)
    assert row.verdict is CheckVerdict.FAIL and "ended with 137" in row.finding


ONE_GPU = {"stages": {"train": {"nodes": 2, "gpus_per_node": 1}}}


def test_every_rank_must_have_its_gpu(evidence):
    """The answers of ranks with GPUs are made up: there is none here."""
    evidence = with_site(evidence, **ONE_GPU)
    summed(evidence, {"device": "A100"}, {"device": "A100"})
    row = Gpus().evaluate(evidence)
    assert (row.verdict, row.finding) == (CheckVerdict.OK, "2 ranks on 2 nodes have one each: 2 x A100")
    answer = {"rank": 1, "node": "h2", "device": "", "backend": "", "seconds": None, "message": "rank 1 on h2 sees"}
    (evidence.folder / "nodes-8_0.0/collective.1.json").write_text(json.dumps(answer))
    row = Gpus().evaluate(evidence)
    assert row.verdict is CheckVerdict.FAIL and row.finding == "rank 1 on h2 sees" and "--nv" in row.advice
    assert Collective().evaluate(evidence).verdict is CheckVerdict.NOT_RUN


def test_gpus_that_no_rank_would_use_fail_before_any_job_has_told(evidence):
    site = {"resources": {"gpus_per_node": 1}, **ONE_GPU}
    row = Gpus().evaluate(with_site(evidence, **site))
    assert row.verdict is CheckVerdict.FAIL and row.finding.startswith(
        "shard, catalog, cluster, assign, encode_captions/all, latents/scale, expert_lists, copy_lists, cluster_report,"
        " concept_vocabulary, concept_counts, concept_analysis, neighbours, compare, reference_statistics,"
        " table: gpus_per_node: 1, and nothing"
    )
    assert Gpus().evaluate(with_site(evidence, **site, allow_idle_gpus=True)).verdict is CheckVerdict.WARN


def test_a_setup_line_that_fails_is_named(evidence):
    failed = "127 module load nix\n"
    (evidence.folder / "7_0.out").write_text("script: line 9: module: command not found\n")
    start(evidence, "array-7_0.0", environment__json=GOOD_PLACE, setup__failed=failed)
    row = Environment().evaluate(evidence)
    assert (
        row.verdict is CheckVerdict.FAIL and "'module load nix' ended with 127" in row.finding and "setup" in row.advice
    )


@pytest.mark.parametrize(
    ("answer", "verdict", "seen"),
    [
        ({}, CheckVerdict.OK, "locks hold"),
        ({"seconds": 20.0}, CheckVerdict.WARN, "seen late"),
        ({"seconds": None}, CheckVerdict.FAIL, "not seen by rank 1"),
        ({"torn": ["No such file or directory"]}, CheckVerdict.FAIL, "renamed file"),
        ({"locks": "two nodes hold the same lock at once"}, CheckVerdict.FAIL, "two nodes"),
    ],
)
def test_storage(evidence, answer, verdict, seen):
    start(evidence, "nodes-8_0.0", storage__json=[GOOD_STORAGE, GOOD_STORAGE | answer])
    row = Storage().evaluate(evidence)
    assert row.verdict is verdict and seen in row.finding, row


def test_ranks_that_did_not_meet_say_why_and_storage_was_not_tried(evidence):
    message = "rank 1 on h2 cannot reach rank 0 at 10.0.0.1: No route to host"
    start(evidence, "nodes-8_0.0", **{"meet.1.error.json": {"message": message}})
    row = Rendezvous().evaluate(evidence)
    assert row.verdict is CheckVerdict.FAIL and row.finding == message and "network_interface" in row.advice
    assert Storage().evaluate(evidence).verdict is CheckVerdict.NOT_RUN


def test_fewer_nodes_than_the_site_asks_for_fail(evidence):
    met = [{"rank": rank, "world": 2, "node": "h1", "seconds": 0.1} for rank in range(2)]
    start(evidence, "nodes-8_0.0", meet__json=met)
    row = Rendezvous().evaluate(evidence)
    assert row.verdict is CheckVerdict.FAIL and "2 ranks on h1; the site asks for 2 on 2 nodes" in row.finding


@pytest.mark.parametrize(
    ("files", "verdict", "seen"),
    [
        (
            {"variables": f"SLURM_JOB_END_TIME={int(STARTED) + 60 * LIMIT}\n", "ends": ""},
            CheckVerdict.OK,
            "SLURM_JOB_END_TIME",
        ),
        ({"ends": str(int(STARTED) + 60 * LIMIT)}, CheckVerdict.OK, "squeue on the node"),
        ({"ends": str(int(STARTED) + 3600)}, CheckVerdict.WARN, "says 60.0 minutes for a limit of 7"),
        ({"ends": "", "ends__said": "squeue: not found"}, CheckVerdict.WARN, "squeue: not found"),
    ],
)
def test_time_left(evidence, files, verdict, seen):
    start(evidence, "array-7_0.0", ends__exit="0", **files)
    row = TimeLeft().evaluate(evidence)
    assert row.verdict is verdict and seen in row.finding, row


def test_sacct_against_what_the_site_says(evidence, monkeypatch):
    monkeypatch.setattr(accounting, "_is_known", lambda job, cluster: True)
    assert Accounting().evaluate(evidence).verdict is CheckVerdict.OK
    row = Accounting().evaluate(with_site(evidence, has_sacct=False))
    assert row.verdict is CheckVerdict.WARN and "has_sacct: true" in row.advice


@pytest.mark.parametrize(
    "file", sorted((REPOSITORY / "hpcddm/launch/selftest/checks").glob("[a-z]*.py")), ids=lambda file: file.stem
)
def test_every_file_of_the_room_is_one_check_with_its_steps_on_the_nodes(file):
    module = importlib.import_module(f"hpcddm.launch.selftest.checks.{file.stem}")
    made_here = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    (check,) = [value for value in made_here if isinstance(value, type) and issubclass(value, Check)]
    assert bool(check.steps) == (check in node.CHECKS)
    if file.stem != "base":
        assert check().name
