"""Verdicts from what jobs left behind, for everything that goes wrong on clusters other than the testbed."""

import json
import re
from pathlib import Path

import pytest

from hpcddm.config.site import Site
from hpcddm.launch.selftest.check_results import CheckVerdict
from hpcddm.launch.selftest.checks import (
    accounting,
    array,
    collective,
    environment,
    gpus,
    rendezvous,
    requeue,
    signals,
    storage,
    time_left,
)
from hpcddm.launch.selftest.evidence import Evidence

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


def leave(evidence: Evidence, left: dict[str, object]) -> None:
    """Write what elements left, such as 'array-7_0.0', the first start of element 0; a text is a file of the job.

    '__' in the name of a file of an element is a dot.
    """
    for name, files in left.items():
        if isinstance(files, str):
            (evidence.folder / name).write_text(files)
            continue
        (evidence.folder / name).mkdir(exist_ok=True)
        for key, value in {"started": STARTED, "setup__done": "", "done": "", **files}.items():
            text = value if isinstance(value, str) else json.dumps(value)
            (evidence.folder / name / key.replace("__", ".")).write_text(text)


def with_site(evidence: Evidence, **changes: object) -> Evidence:
    site = Site.model_validate(evidence.site.model_dump() | changes)
    return Evidence(site, evidence.folder, evidence.submitted, evidence.waiting)


def test_what_still_waits_is_not_run_and_says_why(evidence):
    evidence.waiting["array"] = evidence.waiting["nodes"] = "pending because (Resources)"
    for check in (array, rendezvous, signals, requeue, storage, environment):
        row = check.evaluate(evidence)
        assert (row.verdict, row.finding) == (CheckVerdict.NOT_RUN, "pending because (Resources)"), row
        assert "--timeout" in row.advice


def test_jobs_without_a_trace_are_a_folder_that_the_nodes_do_not_see(evidence):
    for check in (array, rendezvous, storage, environment):
        row = check.evaluate(evidence)
        assert row.verdict is CheckVerdict.FAIL and "--folder, on a shared file system" in row.advice, row


def place(more: dict | None = None, **changes: object) -> dict:
    """What an element on the node h1 left."""
    return {"array-7_0.0": {"environment__json": GOOD_PLACE | changes, **(more or {})}}


def refused(**files: str) -> dict:
    """What the element left that was not allowed to requeue itself."""
    return {"array-7_2.0": {"requeue__exit": "1", "requeue__said": "Operation not permitted", **files}}


def summed(*answers: dict, **files: str) -> dict:
    """What two ranks on two nodes left of the collective."""
    left = {"meet__exit": "0"}
    for rank, answer in enumerate(answers):
        own = {"rank": rank, "node": f"h{rank + 1}", "device": "cpu", "backend": "gloo", "seconds": 0.5, "message": ""}
        left[f"collective__{rank}__json"] = own | answer
    return {"nodes-8_0.0": left | files}


def stored(**answer: object) -> dict:
    return {"nodes-8_0.0": {"storage__json": [GOOD_STORAGE, GOOD_STORAGE | answer]}}


def ends(ends: str, **files: str) -> dict:
    return {"array-7_0.0": {"ends__exit": "0", "ends": ends, **files}}


OK, WARN, FAIL, NOT_RUN = CheckVerdict.OK, CheckVerdict.WARN, CheckVerdict.FAIL, CheckVerdict.NOT_RUN
READY = {"USR2__ready__json": {}, "TERM__ready__json": {}, "USR2__exit": "0", "TERM__exit": "0"}
READY |= {"TERM__json": {"came": STARTED}}
DIED = {"array-7_1.0": READY | {"USR2__exit": "140"}}
STARTED_AGAIN = {name: {} for name in ("array-7_0.0", "array-7_1.0", "array-7_2.0", "array-7_0.1")}
TAKEN_ALONG = STARTED_AGAIN | {"array-7_2.0": {"requeue__exit": "0\n"}, "array-7_2.1": {}}
ACCEPTED = {"array-7_2.0": {"requeue__exit": "0"}}
NO_ROUTE = "rank 1 on h2 cannot reach rank 0 at 10.0.0.1: No route to host"
UNMET = {"nodes-8_0.0": {"meet.1.error.json": {"message": NO_ROUTE}}}
MET = [{"rank": rank, "world": 2, "node": "h1", "seconds": 0.1} for rank in range(2)]
ON_ONE_NODE = {"nodes-8_0.0": {"meet__json": MET}}
DEAF = {"array-7_1.0": READY | {"USR2__json": {"came": None}}}
VARIABLES = place(more={"variables": "SLURM_CPU_BIND=x\nHOME=/\nSRUN_DEBUG=3\n"})
SETUP_FAILED = place(more={"setup__failed": "127 module load nix\n"}) | {"7_0.out": "module: not found\n"}
END = f"SLURM_JOB_END_TIME={int(STARTED) + 60 * LIMIT}\n"
CLOSED = summed({}, {"message": "Connection closed by peer\nmore", "seconds": None})
A100, NO_GPU = {"device": "A100"}, {"device": "", "backend": "", "seconds": None, "message": "rank 1 on h2 sees"}
FOUR_GPUS = {"resources": {"cpus_per_rank": 4, "gpus_per_node": 4}}
ONE_GPU = {"stages": {"train": {"nodes": 2, "gpus_per_node": 1}}}
IDLE_GPUS = {"resources": {"gpus_per_node": 1}, **ONE_GPU}
IDLE = (
    "shard, catalog, cluster, assign, encode_captions/all, latents/scale, expert_lists, copy_lists, cluster_report,"
    " concept_vocabulary, concept_counts, concept_analysis, neighbours, compare, reference_statistics,"
    " table: gpus_per_node: 1, and nothing"
)
CASES = {
    "started again": (array, STARTED_AGAIN, WARN, "element 0 started again", ""),
    "taken along": (requeue, TAKEN_ALONG, FAIL, "took 7_0 along", "requeue: resubmit"),
    "requeue that never comes": (requeue, ACCEPTED, FAIL, "", "requeue: resubmit"),
    "resubmission that never comes": (requeue, ACCEPTED, FAIL, "", "requeue: none", {"requeue": "resubmit"}),
    "may resubmit": (requeue, refused(sbatch__exit="0"), FAIL, "Operation not permitted", "set requeue: resubmit"),
    "may not": (requeue, refused(sbatch__exit="1", sbatch__said="no route"), FAIL, "", "set requeue: none .*no route"),
    "may not resubmit": (requeue, refused(), FAIL, "not permitted", "set requeue: none", {"requeue": "resubmit"}),
    "deaf": (signals, DEAF, FAIL, "USR2 did not reach Python", "deadline.*exec|exec.*deadline"),
    "died": (signals, DIED, FAIL, "died of it (exit 140)", "last checkpoint"),
    "not told": (signals, {"array-7_1.0": DIED["array-7_1.0"] | {"USR2__refused": "access denied"}}, WARN, "", ""),
    "all well": (environment, place(), OK, "cores 0-3,8 on h1", "^$"),
    "no torch": (environment, place(missing=["torch"]), FAIL, "/usr/bin/python has no torch", "."),
    "bound": (environment, place(cores=[5]), FAIL, "bound to 1 cores, 4 requested", "."),
    "threads": (environment, place(threads=None), WARN, "OMP_NUM_THREADS=None, 4 requested", "."),
    "variables of another allocation": (environment, VARIABLES, WARN, "SLURM_CPU_BIND, SRUN_DEBUG", ""),
    "half the GPUs": (environment, place(gpus=2), FAIL, "torch sees 2", "gpu_type", FOUR_GPUS),
    "no CUDA": (environment, place(gpus="none: built for CPUs"), FAIL, "sees none: built", "gpu_type", FOUR_GPUS),
    "torn CUDA": (environment, place(gpus="ImportError: a.so"), FAIL, "sees ImportError", "gpu_type", FOUR_GPUS),
    "a setup line": (environment, SETUP_FAILED, FAIL, "'module load nix' ended with 127", "setup"),
    "sums": (collective, summed({}, {"seconds": 0.64}), OK, "gloo sums 64 MB over 2 ranks at 0.10 GB/s per rank", ""),
    "no sum": (collective, CLOSED, FAIL, "Connection closed by peer", "NCCL_SOCKET_IFNAME"),
    "not tried": (collective, summed({}, {}, meet__exit="1"), NOT_RUN, "", ""),
    "one answer": (collective, summed({}, collective__exit="137"), FAIL, "ended with 137", ""),
    "no GPUs": (gpus, summed({}, {}), OK, "train asks for none", ""),
    "a GPU each": (gpus, summed(A100, A100), OK, "2 ranks on 2 nodes have one each: 2 x A100", "", ONE_GPU),
    "a rank without": (gpus, summed(A100, NO_GPU), FAIL, "rank 1 on h2 sees", "--nv", ONE_GPU),
    "no sum without a GPU": (collective, summed(A100, NO_GPU), NOT_RUN, "", "", ONE_GPU),
    "idle GPUs": (gpus, {}, FAIL, IDLE, "", IDLE_GPUS),
    "idle GPUs are fine": (gpus, {}, WARN, "", "", IDLE_GPUS | {"allow_idle_gpus": True}),
    "storage": (storage, stored(), OK, "locks hold", ""),
    "late": (storage, stored(seconds=20.0), WARN, "seen late", ""),
    "unseen": (storage, stored(seconds=None), FAIL, "not seen by rank 1", ""),
    "torn": (storage, stored(torn=["No such file or directory"]), FAIL, "renamed file", ""),
    "one lock": (storage, stored(locks="two nodes hold the same lock at once"), FAIL, "two nodes", ""),
    "storage was not tried": (storage, UNMET, NOT_RUN, "", ""),
    "no meeting": (rendezvous, UNMET, FAIL, NO_ROUTE, "network_interface"),
    "one node": (rendezvous, ON_ONE_NODE, FAIL, "2 ranks on h1; the site asks for 2 on 2 nodes", ""),
    "the end is a variable": (time_left, ends("", variables=END), OK, "SLURM_JOB_END_TIME", ""),
    "squeue knows the end": (time_left, ends(str(int(STARTED) + 60 * LIMIT)), OK, "squeue on the node", ""),
    "another end": (time_left, ends(str(int(STARTED) + 3600)), WARN, "says 60.0 minutes for a limit of 7", ""),
    "no end": (time_left, ends("", ends__said="squeue: not found"), WARN, "squeue: not found", ""),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_jobs_left_becomes_a_verdict_a_finding_and_an_advice(evidence, case):
    """The answers of ranks with GPUs are made up: there is none here."""
    check, left, verdict, finding, advice, *site = case
    leave(evidence, left)
    row = check.evaluate(with_site(evidence, **site[0]) if site else evidence)
    assert row.verdict is verdict and finding in row.finding and "\n" not in row.finding, row
    assert re.search(advice, row.advice), row


def test_a_requeue_that_still_waits_is_not_judged(evidence):
    leave(evidence, ACCEPTED)
    evidence.waiting["array"] = "pending because (BeginTime)"
    row = requeue.evaluate(evidence)
    assert row.verdict is NOT_RUN and "BeginTime" in row.finding and not requeue.is_settled(evidence)


def test_a_client_that_died_with_its_job_was_not_refused(evidence):
    """The order to requeue can end the job before scontrol has said that all is well."""
    leave(evidence, {"array-7_2.0": {"requeue__exit": "143"}})
    assert not requeue.is_settled(evidence)
    leave(evidence, {"array-7_2.1": {"started": STARTED + 125}})
    assert requeue.is_settled(evidence)
    row = requeue.evaluate(evidence)
    assert (row.verdict, row.seconds) == (OK, 125)


def test_sacct_against_what_the_site_says(evidence, monkeypatch):
    monkeypatch.setattr(accounting, "_is_known", lambda job, cluster: True)
    assert accounting.evaluate(evidence).verdict is OK
    row = accounting.evaluate(with_site(evidence, has_sacct=False))
    assert row.verdict is WARN and "has_sacct: true" in row.advice
