"""Check of storage: other nodes see new files soon, renames are atomic, and locks exclude each other."""

import os
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.files import atomic, checked_reads
from hpcddm.jobs.job_environment import current_ranks, node_name
from hpcddm.launch.selftest.check_results import CheckResult, fail, not_run, ok, warn
from hpcddm.launch.selftest.checks.rendezvous import RankConnections, connect_ranks
from hpcddm.launch.selftest.evidence import Evidence, TrialJob
from hpcddm.runs.lease import HeldElsewhere, lease

VISIBLE_SECONDS = 60
"""Seconds that a node may take to see a file; the ranks of a job wait longer for each other."""
SLOW_SECONDS = 5
RENAMING_SECONDS = 1.0
SCRATCH_VARIABLE = "HPCDDM_SCRATCH"
CONTENT = 4096
PROBE = b"x" * 1_000_000


def observe(folder: Path, spec: dict[str, Any]) -> None:
    """Test inside the job the local scratch, and with all ranks that the folder of the runs is shared."""
    _observe_scratch(folder, spec)
    with connect_ranks(folder, spec) as circle:
        _observe_runs(folder, circle)


def _observe_scratch(folder: Path, spec: dict[str, Any]) -> None:
    """Write to the site's scratch folder inside the job, once on each node, and record the result."""
    ranks = current_ranks()
    if not spec["scratch"] or ranks.local_rank > 0:
        return
    # Filled in by the batch script, since the site may name variables of the job. Not TMPDIR: Slurm quietly puts
    # /tmp there when it cannot use the folder.
    path, complaint, free = os.environ.get(SCRATCH_VARIABLE, ""), "", 0
    if not path:
        complaint = "names a variable that is not set in a job"
    else:
        try:
            free = _write_to(Path(path), f".hpcddm-selftest-{os.getpid()}-{ranks.rank}")
        except OSError as error:
            complaint = f"cannot be written on {node_name()}: {error.strerror}"
    path = path or spec["scratch"]
    record = {"path": path, "complaint": complaint, "free": free}
    atomic.write_json(folder / f"scratch.{ranks.rank}.json", record, durable=False)


def _write_to(place: Path, name: str) -> int:
    """Write a file into a folder, leave nothing, and return the bytes that are free there."""
    is_new = not place.exists()
    # As Slurm does it for TMPDIR: the folder itself, but not those above it.
    place.mkdir(exist_ok=True)
    (place / name).write_bytes(PROBE)
    free = atomic.free_bytes(place)
    (place / name).unlink()
    if is_new:
        with suppress(OSError):
            place.rmdir()
    return free


def _observe_runs(folder: Path, circle: RankConnections) -> None:
    """Test the folder of runs inside the job, on all ranks together, and record the results."""
    seconds = _wait_for_a_new_file(folder, circle)
    torn = _read_while_it_is_renamed(folder, circle)
    records = circle.all_gather({"seconds": seconds, "torn": torn, "locks": _lock(folder, circle)})
    if circle.ranks.rank == 0:
        atomic.write_json(folder / "storage.json", records, durable=False)


def _wait_for_a_new_file(folder: Path, circle: RankConnections) -> float | None:
    path = folder / "new-file"
    # Whoever has looked for a file before may see for a while, from its cache, that there is none.
    path.exists()
    circle.all_gather("looked")
    if circle.ranks.rank == 0:
        atomic.write_text(path, "here")
    circle.all_gather("written")
    started = time.time()
    while time.time() - started < VISIBLE_SECONDS:
        os.listdir(folder)
        if path.exists() and path.read_text() == "here":
            return time.time() - started
        time.sleep(0.02)
    return None


def _read_while_it_is_renamed(folder: Path, circle: RankConnections) -> list[str]:
    """Read a file while rank 0 replaces it again and again; it must never be missing, empty or mixed."""
    path, over = folder / "renamed", threading.Event()
    contents = [letter * CONTENT for letter in "ab"]

    def replace() -> None:
        while not over.is_set():
            for content in contents:
                atomic.write_text(path, content, durable=False)

    if circle.ranks.rank == 0:
        atomic.write_text(path, contents[0])
    circle.all_gather("there")
    writer = threading.Thread(target=replace, daemon=True)
    if circle.ranks.rank == 0:
        writer.start()
    deadline = time.time() + RENAMING_SECONDS
    torn: set[str] = set()
    while time.time() < deadline:
        try:
            if (text := path.read_text()) not in contents:
                torn.add(f"{len(text)} bytes of mixed content")
        except OSError as error:
            torn.add(str(error.strerror))
        time.sleep(0.002)
    circle.all_gather("read")
    if circle.ranks.rank == 0:
        over.set()
        writer.join()
    return sorted(torn)


def _lock(folder: Path, circle: RankConnections) -> str:
    """Try the lease from all ranks at once; return 'good', or the fault of the locks."""
    path = folder / "locked"
    try:
        with lease(path, "selftest") if circle.ranks.rank == 0 else nullcontext():
            circle.all_gather("held")
            result = _try_to_lock(path)
            circle.all_gather("tried")
            return result
    except UserError as error:
        # Rank 0 got no lock at all; the others wait for two words from it.
        circle.all_gather("held")
        circle.all_gather("tried")
        return str(error)


def _try_to_lock(path: Path) -> str:
    try:
        with lease(path, "selftest"):
            return "two nodes hold the same lock at once"
    except HeldElsewhere:
        return "good"
    except UserError as error:
        return str(error)


def evaluate(evidence: Evidence) -> CheckResult:
    """Evaluate scratch first, then the folder of runs."""
    if (start := evidence.last(TrialJob.NODES)) is None:
        return evidence.missing_result(TrialJob.NODES, 0, "meet")
    scratch = list(filter(None, map(checked_reads.read_json, sorted(start.folder.glob("scratch.*.json")))))
    for record in scratch:
        if record["complaint"]:
            advice = "set scratch to a folder on a disk of the node that jobs may write, or leave the key out"
            return fail(None, f"site key scratch: {record['path']} {record['complaint']}", advice)
    if (records := start.json("storage")) is None:
        if any(start.folder.glob("meet.*.error.json")) or start.text("meet.exit") not in (None, "0"):
            return not_run("the ranks did not meet", "see ranks, rendezvous")
        return evidence.missing_result(TrialJob.NODES, 0, "meet")
    free = f"; scratch has {min(record['free'] for record in scratch) / 1e9:.0f} GB" if scratch else ""
    return _evaluate_folder(records, evidence.folder.parent, free)


def _evaluate_folder(records: list[dict[str, Any]], place: Path, scratch: str) -> CheckResult:
    seconds = [record["seconds"] for record in records]
    torn = sorted({fault for record in records for fault in record["torn"]})
    locks = sorted({record["locks"] for record in records} - {"good"})
    elsewhere = f"put runs on another file system than that of {place.resolve()}"
    if None in seconds:
        finding = f"a new file was not seen by rank {seconds.index(None)} within {VISIBLE_SECONDS} s"
        return fail(None, finding, elsewhere)
    slowest = max(seconds)
    if torn:
        return fail(slowest, f"a renamed file was seen with: {', '.join(torn)}", elsewhere)
    if locks:
        return fail(slowest, f"locks: {locks[0]}", f"{elsewhere}, or mount it with locks (Lustre: -o flock)")
    finding = f"new files are seen, renames are atomic, locks hold{scratch}"
    if slowest > SLOW_SECONDS:
        return warn(slowest, f"{finding}; but a new file is seen late", "expect status to lag")
    return ok(slowest, finding)
