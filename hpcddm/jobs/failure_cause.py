"""Cause of a failed attempt, separated from its consequences, from the records of ranks, srun and the kernel."""

import os
import re
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.files import atomic, checked_reads, nfs_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.persistent_errors import PERSISTENT_ERRORS


@dataclass(frozen=True)
class SrunMessage:
    """Pattern of one message, and the reason for the user."""

    pattern: str
    """Pattern, optionally with the groups `nodes` and `how`."""
    reason: str
    """Reason for the user, with placeholders for the groups."""
    is_weak: bool = False
    """True if srun also prints the message after a rank has failed."""


MESSAGES = (
    # src/api/step_launch.c, _launch_tasks
    SrunMessage(
        r"error: Task launch for .+ failed on node (?P<nodes>\S+): (?P<how>.+)",
        "srun could not start the ranks on {nodes}: {how}",
    ),
    # src/api/step_launch.c and src/srun/libsrun/allocate.c, _node_fail_handler
    SrunMessage(r"error: Node failure on (?P<nodes>[^\s,]+(?:,[^\s,]+)*)", "Slurm lost {nodes}"),
    # src/api/step_launch.c, _step_missing_handler
    SrunMessage(r"error: Step \S+ missing from node\(s\) (?P<nodes>\S+)", "Slurm lost the ranks on {nodes}"),
    # src/slurmd/slurmstepd/req.c, _handle_signal_container
    SrunMessage(r"CANCELLED AT \S+ DUE TO NODE FAILURE", "Slurm lost a node of the job"),
    # src/srun/libsrun/launch.c, create_job_step
    SrunMessage(r"error: Unable to create (?:job )?step(?: for job \d+)?: (?P<how>.+)", "srun could not begin: {how}"),
    SrunMessage(r"Cancelled pending (?:job )?step", "srun could not begin: its step was cancelled"),
    # src/srun/libsrun/allocate.c, existing_allocation
    SrunMessage(r"error: Unable to confirm allocation for job \d+: (?P<how>.+)", "srun could not begin: {how}"),
    # src/api/step_launch.c, slurm_step_launch_wait_start
    SrunMessage(r"error: timeout waiting for task launch", "srun could not start all ranks in time"),
    # src/srun/libsrun/launch.c, launch_g_step_launch
    SrunMessage(r"error: Application launch failed: (?P<how>.+)", "srun could not start the ranks: {how}"),
    # src/api/step_launch.c, _check_io_timeout and _step_missing_handler; src/api/step_io.c
    SrunMessage(
        r"error: (?:\S+: )?(?P<how>[Aa]borting, (?:io error|step missing|can not test connection).+"
        r"|Cannot communicate with node \d+)",
        "srun lost its ranks: {how}",
    ),
    # src/srun/libsrun/allocate.c, _job_complete_handler
    SrunMessage(r"(?i:force[ -]terminated)", "Slurm ended the step from outside", is_weak=True),
    # src/slurmd/slurmstepd/req.c, _handle_signal_container, for a signal of scancel or of the controller
    SrunMessage(r"\*\*\* \S+ .*CANCELLED AT \S+ \*\*\*", "the step was cancelled from outside", is_weak=True),
)
"""Messages by priority: the first one that matches is the reason."""

WRONG_REQUEST = re.compile(
    r"could not execve|MPI plugin|processors requested|node configuration is not|Memory required|generic resource|TRES"
    r"|specification invalid|Pathname|Incompatible versions"
)
"""Pattern of the errors that a unit's request causes on every node: src/common/slurm_errno.c."""


RANK_FILE = re.compile("rank([0-9]+).json")
PEER_FAILURE = re.compile(
    "closed by peer|reset by peer|broken pipe|gloo|nccl|tcpstore|store->|socket|connect|rendezvous"
    "|Dist(Backend|Network|Store)Error|rank 0 found nothing to do|did not announce itself"
    "|opened no attempt|another rank",
    re.IGNORECASE,
)
"""Pattern of the errors that a rank also gets after another rank has died."""
OUT_OF_MEMORY = re.compile(r"out of memory|oom[-_ ]?kill", re.IGNORECASE)
"""Pattern of Slurm's and the kernel's messages about too little memory."""
HOST_MEMORY = re.compile(r"\bMemoryError|can't allocate memory|cannot allocate memory", re.IGNORECASE)
"""Pattern of a rank's error about the node's memory, not a GPU's memory."""
SRUN_ENDING = re.compile(r"error: (?P<node>\S+): tasks? (?P<ranks>[0-9,-]+): (?P<how>.+)")
"""Pattern of the line in which srun reports failed ranks."""
SRUN_ENDS_ALL = re.compile("Terminating StepId|CANCELLED AT|Terminating job step|Job step aborted")
"""Pattern of the line after which srun reports ranks that it terminated itself."""
RANGE = re.compile("([0-9]+)(?:-([0-9]+))?")
TAIL_BYTES, MAX_RANKS = 4096, 100_000


@dataclass(frozen=True)
class RankEnd:
    """Record that one rank writes about its end."""

    rank: int
    local_rank: int
    host: str
    outcome: str
    reason: str
    exit_code: int | None
    time: float
    final: bool = False
    """True if another attempt would fail in the same way."""

    @property
    def text(self) -> str:
        """Reason, preceded by rank and host."""
        return f"rank {self.rank} on {self.host}: {self.reason}"


@dataclass(frozen=True)
class Cause:
    """Cause of a failed attempt."""

    reason: str
    """Description for the user."""
    is_memory: bool = False
    """True if the job ran out of the node's memory."""
    is_outside: bool = False
    """True if a node, srun or the controller ended the attempt, not one of its ranks."""
    nodes: tuple[str, ...] = ()
    """Slurm's lists of the faulty nodes; empty if unknown."""
    is_final: bool = False
    """True if another attempt would fail in the same way."""


def write_rank_end(
    folder: Path, ranks: Ranks, outcome: Outcome, reason: str, exit_code: int | None, final: bool = False
) -> None:
    """Write the end of this rank into the attempt's folder; write errors are ignored."""
    ending = RankEnd(ranks.rank, ranks.local_rank, socket.gethostname(), outcome, reason, exit_code, time.time(), final)
    with suppress(OSError, UserError):
        atomic.write_json(folder / f"rank{ranks.rank}.json", asdict(ending), durable=False)


def read_rank_ends(folder: Path) -> list[RankEnd]:
    """Read the ends that the ranks of an attempt recorded, sorted by time."""
    endings: list[RankEnd | None] = []
    for name in nfs_reads.list_names(folder):
        if RANK_FILE.fullmatch(name):
            with suppress(Unreadable):
                endings.append(checked_reads.read_json(folder / name, RankEnd, checked_reads.RECORD_BYTES))
    return sorted(filter(None, endings), key=lambda ending: ending.time)


def outside_cause(srun: str, is_first: bool = False) -> Cause | None:
    """Return the cause of a failure that no rank caused, according to srun; None without such a failure.

    Args:
        srun: Messages of srun and slurmstepd.
        is_first: True if no rank failed before, so that messages which srun also prints after a failed rank count.
    """
    for message in MESSAGES:
        matches = [match for match in re.finditer(message.pattern, srun) if not WRONG_REQUEST.search(match[0])]
        if matches and (is_first or not message.is_weak):
            groups = [match.groupdict() for match in matches]
            nodes = tuple(dict.fromkeys(group["nodes"] for group in groups if "nodes" in group))
            reason = message.reason.format(nodes=", ".join(nodes), how=groups[0].get("how", "").strip())
            return Cause(reason, is_outside=True, nodes=nodes)
    return None


def find_cause(
    folder: Path,
    world_size: int | None,
    srun: str = "",
    output: str = "",
    oom_kills: int = 0,
    down: Sequence[str] = (),
    write_error: OSError | UserError | None = None,
) -> Cause | None:
    """Find the cause of a failed attempt.

    The error of the rank that failed first takes precedence over the errors that its failure caused in other ranks.

    Args:
        folder: Folder of the attempt.
        world_size: Number of ranks; None if unknown.
        srun: Messages of srun.
        output: Last part of the output files that Slurm wrote for the ranks.
        oom_kills: Number of processes that the kernel killed on the first node because of memory.
        down: Nodes of the attempt that do not respond.
        write_error: Error on writing into the attempt's folder, which may be why ranks left no record; None for none.

    Returns:
        The cause; None if only the exit code is known.
    """
    if cause := outside_cause(srun):
        return cause
    endings = read_rank_ends(folder)
    failed = [ending for ending in endings if ending.outcome == Outcome.FAILED]
    own_errors = [ending for ending in failed if not PEER_FAILURE.search(ending.reason)]
    speakers = {ending.rank for ending in endings}
    # Ranks that srun terminated count only if the ranks' errors show that one of them was dead before.
    lost = [ending for ending in _endings(srun) if ending.rank not in speakers and (ending.is_first or failed)]
    killed = [ending for ending in lost if ending.how == "Killed"]
    has_counted = bool(oom_kills or OUT_OF_MEMORY.search(output))
    for ending in [ending for ending in lost if OUT_OF_MEMORY.search(ending.how)] + (killed if has_counted else []):
        return Cause(f"out of memory on {ending.node} (rank {ending.rank})", is_memory=True)
    if own_errors and not (killed and killed[0].is_first):
        first = own_errors[0]
        return Cause(first.text, bool(HOST_MEMORY.search(first.reason)), is_final=first.final)
    if down:
        verb = "does" if len(down) == 1 else "do"
        return Cause(f"{', '.join(down)} {verb} not respond", is_outside=True, nodes=tuple(down))
    if write_error:
        text = write_error.strerror if isinstance(write_error, OSError) else str(write_error)
        reason = f"the ranks could leave no record in {folder}: {text}; make it writable, or room on its disk"
        is_final = isinstance(write_error, UserError) or write_error.errno in PERSISTENT_ERRORS
        return Cause(reason, is_final=is_final)
    for ending in killed:
        text = f"out of memory on {ending.node}, it seems: rank {ending.rank} was killed without a word"
        return Cause(text, is_memory=True)
    silent = sorted(set(range(world_size or 0)) - speakers)
    if failed and silent and not srun:
        names = ", ".join(map(str, silent))
        text = f"rank {names} ended without a word, as one does that is killed for want of memory; {failed[0].text}"
        return Cause(text, is_memory=True)
    if failed:
        return Cause(failed[0].text)
    return outside_cause(srun, is_first=not endings and not any(ending.is_first for ending in _endings(srun)))


def first_exit_code(srun: str) -> int | None:
    """Return the exit code of the rank that ended first, according to srun; None without one."""
    codes = (re.search("[Ee]xit(?:ed with exit)? code ([0-9]+)", ending.how) for ending in _endings(srun))
    match = next(codes, None)
    return int(match[1]) if match else None


def oom_kills(cgroups: Path = Path("/sys/fs/cgroup"), own_group: Path = Path("/proc/self/cgroup")) -> int:
    """Count the processes of this job that the kernel killed on this node because of memory; 0 if unknown.

    It is known only with version 2 of cgroups, whose job folder also counts ended steps.

    Args:
        cgroups: Folder of the cgroups file system.
        own_group: File that names the cgroup of this process.
    """
    # StopIteration: outside of a job, or under version 1.
    with suppress(OSError, StopIteration):
        place = next(line.removeprefix("0::/") for line in own_group.read_text().splitlines() if line.startswith("0::"))
        parts = Path(place).parts
        job = next(number for number, part in enumerate(parts) if part.startswith("job_"))
        events = (cgroups.joinpath(*parts[: job + 1]) / "memory.events").read_text()
        match = re.search("^oom_kill ([0-9]+)", events, re.MULTILINE)
        return int(match[1]) if match else 0
    return 0


def read_tails(files: list[Path], since: float) -> str:
    """Read the last `TAIL_BYTES` of recent files as one text; unreadable and special files are omitted.

    Args:
        files: Paths of the files.
        since: Earliest time of modification, in seconds since the epoch.
    """
    ends = []
    for path in files:
        with suppress(OSError, Unreadable), open(checked_reads.open_regular(path), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_mtime >= since:
                end = os.pread(file.fileno(), TAIL_BYTES, max(status.st_size - TAIL_BYTES, 0))
                ends.append(end.decode(errors="replace"))
    return "\n".join(ends)


@dataclass(frozen=True)
class _SrunRankEnd:
    """Failure of a rank as srun reports it; `is_first` is True if srun had not yet terminated other ranks."""

    node: str
    rank: int
    how: str
    is_first: bool


def _endings(srun: str) -> list[_SrunRankEnd]:
    endings = []
    is_first = True
    for line in srun.splitlines():
        is_first = is_first and not SRUN_ENDS_ALL.search(line)
        if match := SRUN_ENDING.search(line):
            node, how = match["node"], match["how"].strip()
            endings += [_SrunRankEnd(node, rank, how, is_first) for rank in _numbers(match["ranks"])]
    return endings


def _numbers(text: str) -> list[int]:
    """Convert Slurm's list of ranks, such as '0-2,5', to numbers, at most `MAX_RANKS` per range."""
    ranges = ((int(low), int(high or low)) for low, high in RANGE.findall(text))
    return [number for low, high in ranges for number in range(low, min(high, low + MAX_RANKS) + 1)]
