"""Collective: every rank takes its device and joins as a training's ranks do, and one all-reduce is timed."""

import time
from pathlib import Path
from typing import Any

from hpcddm.files import atomic, checked_reads
from hpcddm.jobs.job_environment import current_ranks, gpus_on_node, node_name
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.stopping import StopFlag
from hpcddm.jobs.unit import Unit
from hpcddm.launch.selftest.check_results import CheckResult, fail, not_run, ok
from hpcddm.launch.selftest.evidence import CHECKED_STAGE, Evidence, JobStart, TrialJob
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.run_dir import RunDir

STEP = "collective"
MEGABYTES = 64
"""Megabytes of gradients that one all-reduce sums."""
REPETITIONS = 3
ADVICE = "set network_interface to the fastest network of the nodes, or NCCL_SOCKET_IFNAME in setup"


def observe(folder: Path, spec: dict[str, Any]) -> None:
    """Join the other ranks inside the job, time a sum, and record device, backend and seconds, or the error."""
    from hpcddm.jobs.devices import choose_device, device_name
    from hpcddm.training import process_group

    ranks = current_ranks()
    record = {"rank": ranks.rank, "node": node_name(), "device": "", "backend": "", "seconds": None, "message": ""}
    key = f"{CHECKED_STAGE}/selftest"
    run = RunDir(folder)
    attempt = open_attempt(run.logs(key), ranks, {})
    heartbeat = HeartbeatWriter(attempt.folder, ranks.owner, attempt.number, node_name())
    interface, gpus = spec["network_interface"], max(spec["gpus_per_node"], gpus_on_node())
    try:
        unit = Unit(key, run, ranks, attempt, heartbeat, StopFlag(), {}, "", network_interface=interface, gpus=gpus)
        record["device"] = device_name(choose_device(unit))
        record |= _sum(process_group.join(unit))
        process_group.leave()
    except Exception as error:
        record["message"] = str(error)
        raise
    finally:
        atomic.write_json(folder / f"{STEP}.{ranks.rank}.json", record, durable=False)


def _sum(device: Any) -> dict[str, Any]:
    """Time the fastest of some all-reduces of the ranks' gradients."""
    import torch
    import torch.distributed as dist

    gradients = torch.ones(MEGABYTES * 1_000_000 // 4, device=device)
    seconds = []
    for _ in range(REPETITIONS + 1):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(gradients)
        # Waits for the device.
        gradients[0].item()
        seconds.append(time.perf_counter() - started)
    return {"backend": dist.get_backend(), "seconds": min(seconds[1:])}


def read_answers(start: JobStart | None) -> list[dict[str, Any]]:
    """Read the answers that the ranks wrote, those with a complaint first."""
    records = map(checked_reads.read_json, start.folder.glob(f"{STEP}.*.json")) if start else []
    return sorted((record for record in records if record), key=lambda record: (not record["message"], record["rank"]))


def evaluate(evidence: Evidence) -> CheckResult:
    """Check that all ranks have summed; a slow sum is not a failure, because the network's speed is unknown."""
    records, ranks = read_answers(evidence.last(TrialJob.NODES)), evidence.resources.ranks
    if evidence.resources.gpus_per_node and any(record["device"] in ("", "cpu") for record in records):
        return not_run("not every rank has a GPU", "see GPUs")
    if records and records[0]["message"]:
        return fail(None, records[0]["message"].splitlines()[0], ADVICE)
    if len(records) != ranks:
        return evidence.missing_result(TrialJob.NODES, 0, STEP)
    slowest = max(record["seconds"] for record in records)
    backend = records[0]["backend"]
    if ranks == 1:
        return ok(slowest, f"{backend}: the site asks for one rank, so no network was tried")
    # Each rank sends and receives 2 (n - 1) / n of the data, whatever the algorithm.
    rate = 2 * (ranks - 1) / ranks * MEGABYTES / 1000 / slowest
    return ok(slowest, f"{backend} sums {MEGABYTES} MB over {ranks} ranks at {rate:.2f} GB/s per rank")
