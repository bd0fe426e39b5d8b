"""Cause of a failed attempt, as distinct from its consequences, from the records of its ranks, srun and the kernel."""

import os
import re
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.files import atomic, fresh, reading
from hpcddm.files.reading import Unreadable
from hpcddm.jobs.environment import Ranks
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.srun_messages import outside_end

FILE = re.compile("rank([0-9]+).json")
OF_A_PEER = re.compile(
    "closed by peer|reset by peer|broken pipe|gloo|nccl|tcpstore|store->|socket|connect|rendezvous"
    "|Dist(Backend|Network|Store)Error|rank 0 found nothing to do|did not announce itself"
    "|opened no attempt|another rank",
    re.IGNORECASE,
)
"""Pattern of the errors that a rank also gets when another one has died."""
OUT_OF_MEMORY = re.compile(r"out of memory|oom[-_ ]?kill", re.IGNORECASE)
"""Pattern of the messages of Slurm and the kernel about too little memory."""
HOST_MEMORY = re.compile(r"\bMemoryError|can't allocate memory|cannot allocate memory", re.IGNORECASE)
"""Pattern of a rank's own error about the node's memory; more of that does not help where a GPU ran out of its own."""
SRUN_ENDING = re.compile(r"error: (?P<node>\S+): tasks? (?P<ranks>[0-9,-]+): (?P<how>.+)")
"""Pattern of the line in which srun reports ranks that ended badly."""
SRUN_ENDS_ALL = re.compile("Terminating StepId|CANCELLED AT|Terminating job step|Job step aborted")
"""Pattern of the line after which srun reports ranks that it ended itself."""
RANGE = re.compile("([0-9]+)(?:-([0-9]+))?")
TAIL_BYTES, MOST_RANKS = 4096, 100_000


@dataclass(frozen=True)
class RankEnding:
    """Record by one rank of its own end."""

    rank: int
    local_rank: int
    host: str
    outcome: str
    reason: str
    exit_code: int | None
    time: float

    @property
    def text(self) -> str:
        """The reason, preceded by rank and host."""
        return f"rank {self.rank} on {self.host}: {self.reason}"


@dataclass(frozen=True)
class Cause:
    """Reason for the failure of an attempt; `is_memory` where there was too little memory."""

    reason: str
    is_memory: bool = False
    is_outside: bool = False
    """True where a node, srun or the controller ended the attempt, and no rank."""
    nodes: tuple[str, ...] = ()
    """Slurm's lists of the nodes at fault; empty for none in particular."""


def write_rank_ending(folder: Path, ranks: Ranks, outcome: Outcome, reason: str, exit_code: int | None) -> None:
    """Write how this rank ended; an error of writing is ignored."""
    ending = RankEnding(ranks.rank, ranks.local_rank, socket.gethostname(), outcome, reason, exit_code, time.time())
    with suppress(OSError, UserError):
        atomic.write_json(folder / f"rank{ranks.rank}.json", asdict(ending), durable=False)


def rank_endings(folder: Path) -> list[RankEnding]:
    """Read the ends that the ranks of an attempt recorded, in the order of time."""
    endings: list[RankEnding | None] = []
    for name in fresh.names(folder):
        if FILE.fullmatch(name):
            with suppress(Unreadable):
                endings.append(reading.read_json(folder / name, RankEnding, reading.RECORD_BYTES))
    return sorted(filter(None, endings), key=lambda ending: ending.time)


def outside_cause(srun: str, is_first: bool = False) -> Cause | None:
    """Return the cause that srun names where no rank caused the end; None for none.

    is_first: True where no rank ended badly before, so that what srun may also say afterwards counts.
    """
    end = outside_end(srun, is_first)
    return Cause(end[0], is_outside=True, nodes=tuple(end[1])) if end else None


def cause_of(
    folder: Path,
    world_size: int | None,
    srun: str = "",
    output: str = "",
    oom_kills: int = 0,
    down: Sequence[str] = (),
) -> Cause | None:
    """Find out why the ranks of an attempt failed; None where only their exit code is known.

    srun: its messages; output: the end of what Slurm wrote into the ranks' own files; oom_kills: as the kernel counted
    them on the node of the batch script; down: nodes of the attempt that do not respond. A rank's own error outranks
    those that its siblings got from its end.
    """
    if cause := outside_cause(srun):
        return cause
    endings = rank_endings(folder)
    failed = [ending for ending in endings if ending.outcome == Outcome.FAILED]
    own_errors = [ending for ending in failed if not OF_A_PEER.search(ending.reason)]
    speakers = {ending.rank for ending in endings}
    # What srun ended itself counts only where the ranks' errors say that one was dead before.
    lost = [ending for ending in _endings(srun) if ending.rank not in speakers and (ending.is_first or failed)]
    killed = [ending for ending in lost if ending.how == "Killed"]
    has_counted = bool(oom_kills or OUT_OF_MEMORY.search(output))
    for ending in [ending for ending in lost if OUT_OF_MEMORY.search(ending.how)] + (killed if has_counted else []):
        return Cause(f"out of memory on {ending.node} (rank {ending.rank})", is_memory=True)
    if own_errors and not (killed and killed[0].is_first):
        return Cause(own_errors[0].text, bool(HOST_MEMORY.search(own_errors[0].reason)))
    if down:
        verb = "does" if len(down) == 1 else "do"
        return Cause(f"{', '.join(down)} {verb} not respond", is_outside=True, nodes=tuple(down))
    for ending in killed:
        return Cause(
            f"out of memory on {ending.node}, it seems: rank {ending.rank} was killed without a word", is_memory=True
        )
    silent = sorted(set(range(world_size or 0)) - speakers)
    if failed and silent and not srun:
        names = ", ".join(map(str, silent))
        text = f"rank {names} ended without a word, as one does that is killed for want of memory; {failed[0].text}"
        return Cause(text, is_memory=True)
    if failed:
        return Cause(failed[0].text)
    return outside_cause(srun, is_first=not endings and not any(ending.is_first for ending in _endings(srun)))


def oom_kills(cgroups: Path = Path("/sys/fs/cgroup"), own_group: Path = Path("/proc/self/cgroup")) -> int:
    """Count the processes of this job that the kernel killed on this node for want of memory; 0 where it is unknown.

    Only under version 2 of cgroups, whose job folder also counts the steps that have ended.
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


def tails(files: list[Path], since: float) -> str:
    """Read the last `TAIL_BYTES` of the files modified since `since`, in seconds since the epoch, as one text.

    Files that are missing, no regular ones or cannot be read are left out.
    """
    ends = []
    for path in files:
        with suppress(OSError, Unreadable), open(reading.open_regular(path), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_mtime >= since:
                end = os.pread(file.fileno(), TAIL_BYTES, max(status.st_size - TAIL_BYTES, 0))
                ends.append(end.decode(errors="replace"))
    return "\n".join(ends)


@dataclass(frozen=True)
class _Ending:
    """Bad end of a rank as srun reports it; `is_first`: before srun ended the others."""

    node: str
    rank: int
    how: str
    is_first: bool


def _endings(srun: str) -> list[_Ending]:
    endings = []
    is_first = True
    for line in srun.splitlines():
        is_first = is_first and not SRUN_ENDS_ALL.search(line)
        match = SRUN_ENDING.search(line)
        if match:
            node, how = match["node"], match["how"].strip()
            endings += [_Ending(node, rank, how, is_first) for rank in _numbers(match["ranks"])]
    return endings


def _numbers(text: str) -> list[int]:
    """Convert Slurm's list of ranks, such as '0-2,5', to numbers, `MOST_RANKS` of each range at most."""
    ranges = ((int(low), int(high or low)) for low, high in RANGE.findall(text))
    return [number for low, high in ranges for number in range(low, min(high, low + MOST_RANKS) + 1)]
