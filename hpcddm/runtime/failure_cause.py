"""Cause of a failed attempt, from what its ranks, srun and the kernel left, and not what followed from that cause."""

import re
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.rundir import atomic, fresh
from hpcddm.runtime.outcome import Outcome
from hpcddm.runtime.ranks import Ranks

FILE = re.compile("rank([0-9]+).json")
OF_A_PEER = re.compile(
    "closed by peer|reset by peer|broken pipe|gloo|nccl|tcpstore|store->|socket|connect|rendezvous"
    "|Dist(Backend|Network|Store)Error|rank 0 found nothing to do|another rank",
    re.IGNORECASE,
)
"""An error that a rank also gets when another one has died."""
OUT_OF_MEMORY = re.compile(r"out of memory|oom[-_ ]?kill", re.IGNORECASE)
"""In the words of Slurm and the kernel."""
HOST_MEMORY = re.compile(r"\bMemoryError|can't allocate memory|cannot allocate memory", re.IGNORECASE)
"""In a rank's own error: that of a GPU is not mended by more memory of the node."""
SRUN_ENDING = re.compile(r"error: (?P<node>\S+): tasks? (?P<ranks>[0-9,-]+): (?P<how>.+)")
"""Line by which srun tells of ranks that ended badly."""
LAUNCH_FAILED = re.compile(r"error: Task launch for \S+ failed on node (?P<node>\S+): (?P<how>.+)")
"""Line by which srun tells of a node on which it could start nothing."""
SRUN_ENDS_ALL = re.compile("Terminating StepId|CANCELLED AT|Terminating job step|Job step aborted")
"""From here on srun tells of ranks that it ended itself."""
TAIL_BYTES = 4096


@dataclass(frozen=True)
class RankEnding:
    """Last word of one rank about its own end."""

    rank: int
    local_rank: int
    host: str
    outcome: str
    reason: str
    exit_code: int | None
    time: float

    @property
    def text(self) -> str:
        """The reason and whose it is."""
        return f"rank {self.rank} on {self.host}: {self.reason}"


@dataclass(frozen=True)
class Cause:
    """Reason for the failure of an attempt; `is_memory` where there was too little memory."""

    reason: str
    is_memory: bool = False


def write_rank_ending(folder: Path, ranks: Ranks, outcome: Outcome, reason: str, exit_code: int | None) -> None:
    """Write how this rank ended; what cannot be written is no reason to end otherwise."""
    word = RankEnding(ranks.rank, ranks.local_rank, socket.gethostname(), outcome, reason, exit_code, time.time())
    with suppress(OSError, UserError):
        atomic.write_json(folder / f"rank{ranks.rank}.json", asdict(word), durable=False)


def rank_endings(folder: Path) -> list[RankEnding]:
    """Read the last words of the ranks of an attempt, the first ones first."""
    found = []
    for name in fresh.names(folder):
        content: Any = atomic.read_json(folder / name) if FILE.fullmatch(name) else None
        with suppress(TypeError):
            found.append(RankEnding(**content))
    return sorted(found, key=lambda word: word.time)


def cause_of(
    folder: Path, world_size: int | None, srun: str = "", output: str = "", oom_kills: int = 0
) -> Cause | None:
    """Find out why the ranks of an attempt failed; None where nobody knows more than their exit code.

    srun: its words; output: the end of what Slurm wrote into the ranks' own files; oom_kills: as the kernel counted
    them on the node of the batch script. A rank's own error outranks those that its siblings got from its end.
    """
    if launch := LAUNCH_FAILED.search(srun):
        return Cause(f"srun could not start the ranks on {launch['node']}: {launch['how'].strip()}")
    words = rank_endings(folder)
    failed = [word for word in words if word.outcome == Outcome.FAILED]
    own = [word for word in failed if not OF_A_PEER.search(word.reason)]
    speakers = {word.rank for word in words}
    # What srun ended itself counts only where the ranks' errors say that one was dead before.
    lost = [one for one in _endings(srun) if one.rank not in speakers and (one.is_first or failed)]
    killed = [one for one in lost if one.how == "Killed"]
    has_counted = bool(oom_kills or OUT_OF_MEMORY.search(output))
    for one in [one for one in lost if OUT_OF_MEMORY.search(one.how)] + (killed if has_counted else []):
        return Cause(f"out of memory on {one.node} (rank {one.rank})", is_memory=True)
    if own and not (killed and killed[0].is_first):
        return Cause(own[0].text, bool(HOST_MEMORY.search(own[0].reason)))
    for one in killed:
        return Cause(
            f"out of memory on {one.node}, it seems: rank {one.rank} was killed without a word", is_memory=True
        )
    silent = sorted(set(range(world_size or 0)) - speakers)
    if failed and silent and not srun:
        names = ", ".join(map(str, silent))
        text = f"rank {names} ended without a word, as one does that is killed for want of memory; {failed[0].text}"
        return Cause(text, is_memory=True)
    return Cause(failed[0].text) if failed else None


def oom_kills(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Count the processes of this job that the kernel killed on this node for want of memory; 0 where nobody counts.

    Only under version 2 of cgroups, whose job folder also counts the steps that have ended.
    """
    # StopIteration: outside of a job, or under version 1.
    with suppress(OSError, StopIteration, TypeError):
        place = next(line.removeprefix("0::/") for line in own.read_text().splitlines() if line.startswith("0::"))
        parts = Path(place).parts
        job = next(number for number, part in enumerate(parts) if part.startswith("job_"))
        events = (cgroups.joinpath(*parts[: job + 1]) / "memory.events").read_text()
        return int(re.search("^oom_kill ([0-9]+)", events, re.MULTILINE)[1])
    return 0


def tails(files: list[Path], since: float) -> str:
    """The ends of files that were written since."""
    found = []
    for file in files:
        with suppress(OSError):
            if file.stat().st_mtime >= since:
                found.append(file.read_bytes()[-TAIL_BYTES:].decode(errors="replace"))
    return "\n".join(found)


@dataclass(frozen=True)
class _Ending:
    """A rank that srun says ended badly; `is_first`: before srun ended the others."""

    node: str
    rank: int
    how: str
    is_first: bool


def _endings(srun: str) -> list[_Ending]:
    found = []
    is_first = True
    for line in srun.splitlines():
        is_first = is_first and not SRUN_ENDS_ALL.search(line)
        match = SRUN_ENDING.search(line)
        for rank in _numbers(match["ranks"]) if match else []:
            found.append(_Ending(match["node"], rank, match["how"].strip(), is_first))
    return found


def _numbers(text: str) -> list[int]:
    """Slurm's '0-2,5' as numbers."""
    ranges = (part.partition("-") for part in text.split(","))
    return [number for low, _, high in ranges for number in range(int(low), int(high or low) + 1)]
