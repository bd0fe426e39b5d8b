"""Atomic training states: staged, synced, confirmed by every rank, then renamed; the last two are kept."""

import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard

import torch.distributed as dist

from hpcddm.errors import UserError
from hpcddm.rundir import atomic, fresh
from hpcddm.runtime.unit import Unit
from hpcddm.training.engine import Engine
from hpcddm.training.settings import STATE_FORMAT

KEPT = 2
PROBE_BYTES = 1 << 20
"""Number of bytes that a disk must still take, or else it is full."""
STATE = "state.json"


@dataclass(frozen=True)
class Written:
    """One file of a state, as reported by the rank that wrote it; the name is relative to the state's folder."""

    name: str
    rank: int
    size: int
    sha256: str


class Checkpoints:
    """Training states of one unit, below its folder `state/`."""

    def __init__(self, unit: Unit) -> None:
        self._folder = unit.state
        self._trajectory = unit.trajectory
        self._world_size = unit.ranks.world_size
        self._local_rank = unit.ranks.local_rank
        self._zero_stage = unit.zero_stage
        self._attempt = unit.attempt

    def save(self, engine: Engine, images: int, loop: dict[str, Any]) -> float:
        """Save on all ranks together and return the seconds it took.

        Raises `UserError` with the path and the free bytes when the disk is full; what was saved before stays valid.
        Raises `Superseded` when a later attempt owns the unit, `RuntimeError` when rank 0 cannot see what others wrote.
        """
        started = time.time()
        staged = self._folder
        try:
            staged = self._new_folder(images)
            files = _describe(engine.save(staged), staged)
            if self._local_rank == 0:
                # What lies in this node's memory only is lost with it; no other node can sync it.
                for folder in (staged, *(path for path in staged.rglob("*") if path.is_dir())):
                    atomic.sync(folder)
            reports: list[list[Written]] = [[] for _ in range(self._world_size)]
            dist.all_gather_object(reports, files)
            if dist.get_rank() == 0:
                self._publish(staged, [file for report in reports for file in report], images, loop)
        except Exception as error:
            if not self._is_refused(error):
                raise
            raise self._refusal(staged, error) from error
        dist.barrier()
        return time.time() - started

    def _new_folder(self, images: int) -> Path:
        """Make a folder on rank 0, under a name that was never used before, and return it on all ranks.

        On a node that has cached a name from an earlier save it may still mean the state that was published since. And
        an attempt whose node Slurm has given up may still be writing into its folder.
        """
        name = [f".staged-{self._attempt.number}-{images}-{atomic.unused()}"]
        if dist.get_rank() == 0:
            self._clear_staged()
            (self._folder / name[0]).mkdir(parents=True)
        dist.broadcast_object_list(name, src=0)
        return self._folder / name[0]

    def _clear_staged(self) -> None:
        """Remove what earlier attempts left half-written, and nothing of a later one."""
        for folder in self._folder.glob(".staged-*"):
            number = folder.name.removeprefix(".staged-").partition("-")[0]
            if number.isdigit() and int(number) <= self._attempt.number:
                shutil.rmtree(folder, ignore_errors=True)

    def _is_refused(self, error: Exception) -> bool:
        """Tell if the disk refuses writes, by a test if need be: losing another rank raises similar errors."""
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            return True
        try:
            with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
                return file.write(bytes(PROBE_BYTES)) < PROBE_BYTES
        except OSError:
            return True

    def _refusal(self, staged: Path, error: Exception) -> UserError:
        """Make the error for a state that could not be written, after removing what was staged of it."""
        free = atomic.free_bytes(self._folder)
        if staged != self._folder:
            shutil.rmtree(staged, ignore_errors=True)
        needed = max((sum(file.size for file in _files(state)) for _, state in self._states()), default=0)
        size = f" of about {needed} bytes" if needed else ""
        reason = getattr(error, "strerror", None) or error
        return UserError(f"{staged}: cannot save the training state{size}, {free} bytes are free ({reason})")

    def agree_on_newest(self) -> tuple[Path, dict[str, Any]] | None:
        """Agree on the newest intact state, on all ranks: a file system may show them different folders.

        Rank 0 lists the states; each rank reads the files that it wrote and compares their digests. That takes as long
        as reading them, and leaves them in the page cache for the load that follows. None where no state is intact.
        """
        shared = [self.candidates() if dist.get_rank() == 0 else []]
        dist.broadcast_object_list(shared, src=0)
        for folder, state in shared[0]:
            faults: list[str | None] = [None] * self._world_size
            dist.all_gather_object(faults, _fault(folder, state, dist.get_rank()))
            fault = next(filter(None, faults), None)
            if fault is None:
                return folder, state
            if dist.get_rank() == 0:
                print(f"{fault}: {folder} is torn; passing over it", flush=True)
        return None

    def candidates(self) -> list[tuple[Path, dict[str, Any]]]:
        """List the states that could be continued, newest first.

        Raises `UserError` for one of another number of ranks or stage of ZeRO, or of an earlier version.
        """
        candidates = self._states()[::-1]
        for folder, state in candidates:
            if state.get("format") != STATE_FORMAT:
                raise UserError(
                    f"{folder} was saved by an earlier version of hpcddm; go on with that one, or delete the folder to"
                    " start again"
                )
            if state["world_size"] != self._world_size:
                raise UserError(
                    f"{folder} was saved by {state['world_size']} ranks and cannot be continued by {self._world_size};"
                    " ask for as many ranks, or delete the folder to start again"
                )
            if state["zero_stage"] != self._zero_stage:
                raise UserError(
                    f"{folder} was saved with zero_stage {state['zero_stage']} and cannot be continued with"
                    f" {self._zero_stage}; set zero_stage as it was, or delete the folder to start again"
                )
        return candidates

    def _publish(self, staged: Path, files: list[Written], images: int, loop: dict[str, Any]) -> None:
        """Publish the files that all ranks have confirmed as a state, if rank 0 can see all of them."""
        if fault := _unseen(staged, files):
            raise RuntimeError(f"{fault}; the training state at {images} images is not published")
        state = {
            "format": STATE_FORMAT,
            "images": images,
            "trajectory": self._trajectory,
            "world_size": self._world_size,
            "zero_stage": self._zero_stage,
            "files": [asdict(file) for file in files],
            "loop": loop,
        }
        atomic.write_json(staged / STATE, state)
        self._attempt.require_ownership()
        target = self._folder / f"images-{images:012d}"
        shutil.rmtree(target, ignore_errors=True)
        staged.rename(target)
        atomic.sync(self._folder)
        for old, _ in self._states()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _states(self) -> list[tuple[Path, dict[str, Any]]]:
        """List this unit's states, oldest first, without those of a training with other settings."""
        folders = sorted(self._folder / name for name in fresh.names(self._folder) if name.startswith("images-"))
        stored = [(folder, fresh.read_json(folder / STATE)) for folder in folders]
        return [(folder, state) for folder, state in stored if _is_of(state, self._trajectory)]


def _describe(paths: list[Path], staged: Path) -> list[Written]:
    """Wait until this rank's files are on the disk, and return their sizes and digests.

    The digest is taken from the page cache while the disk is busy: 1 s per GB on one core, on all ranks at once.
    """
    written = []
    with ThreadPoolExecutor(1) as disk:
        syncs = disk.map(atomic.sync, paths)
        for path in paths:
            name = str(path.relative_to(staged))
            written.append(Written(name, dist.get_rank(), path.stat().st_size, atomic.sha256(path)))
        list(syncs)
    return written


def _unseen(staged: Path, files: list[Written]) -> str | None:
    """Describe the first reported file that rank 0 does not see with its size, or return None."""
    listed = {folder: fresh.names(folder) for folder in {(staged / file.name).parent for file in files}}
    for file in files:
        path = staged / file.name
        size = path.stat().st_size if path.name in listed[path.parent] else None
        if size != file.size:
            problem = "is not there" if size is None else f"has {size} bytes"
            return f"{path} {problem}, but rank {file.rank} wrote {file.size} bytes"
    return None


def _fault(folder: Path, state: dict[str, Any], rank: int) -> str | None:
    """Describe the first file of a rank that is not as the rank wrote it, or return None."""
    for file in _files(state):
        path = folder / file.name
        try:
            if file.rank == rank and fresh.exists(path) and atomic.sha256(path) == file.sha256:
                continue
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
        if file.rank == rank:
            return f"{path} is not what rank {rank} wrote"
    return None


def _is_of(state: Any, trajectory: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(state, dict) and state.get("trajectory") == trajectory


def _files(state: dict[str, Any]) -> list[Written]:
    return [Written(**file) for file in state["files"]] if state.get("format") == STATE_FORMAT else []
