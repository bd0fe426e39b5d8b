"""Atomic training states: staged beside the training, synced, confirmed by every rank, then renamed.

The last two are kept while a training runs.
"""

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist

from hpcddm.errors import UserError
from hpcddm.files import atomic, fresh, inside
from hpcddm.files.reading import Unreadable
from hpcddm.files.tensor_file import TensorFile
from hpcddm.jobs.unit import Unit
from hpcddm.runs import training_states
from hpcddm.runs.training_states import FORMAT, STATE, Written
from hpcddm.training.engine import Engine, HostCopy

KEPT = 2
TIMEOUT = timedelta(hours=2)
"""Longest time for which a rank waits for the parts of the others."""


@dataclass(frozen=True)
class Refusal:
    """Reason for which a rank's disk does not take a state, as it travels to the other ranks."""

    text: str
    errno: int | None

    def throw(self) -> NoReturn:
        """Raise `UserError`; its cause says whether another attempt may succeed."""
        raise UserError(self.text) from (None if self.errno is None else OSError(self.errno, os.strerror(self.errno)))


@dataclass(frozen=True)
class Saved:
    """A published state: the training stood still for `copy_seconds` of the `seconds` that it took."""

    images: int
    copy_seconds: float
    seconds: float


class Checkpoints:
    """Training states of one unit, below its folder `state/`; `save` and `agree_on_newest` are collective."""

    def __init__(self, unit: Unit, most_images: int) -> None:
        """most_images: those of the training, which continues no state of a longer one."""
        self._folder = unit.state
        self._most_images = most_images
        self._trajectory = unit.trajectory
        self._world_size = unit.ranks.world_size
        self._local_rank = unit.ranks.local_rank
        self._resources = {name: getattr(unit.resources, name) for name in ("zero_stage", "micro_batch")}
        self._attempt = unit.attempt
        # A group of its own: states are written beside the training, whose messages go through others.
        self._group = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._writer = ThreadPoolExecutor(1)
        self._pending: Future[Saved] | None = None
        self._begun = 0.0

    @property
    def saving_seconds(self) -> float | None:
        """Seconds since the state that is being written was begun; None where none is."""
        return None if self._pending is None else time.time() - self._begun

    def save(self, engine: Engine, images: int, loop: dict[str, Any]) -> None:
        """Copy the state to the host, and begin to write it beside the training, when the one before is written."""
        if self._pending is not None:
            raise RuntimeError("a state is being written; wait for it first")
        started = self._begun = time.time()
        copy = engine.host_copy()
        copied = time.time()
        self._pending = self._writer.submit(self._write, copy, images, loop, started, copied - started)

    def finished(self) -> Saved | None:
        """Return the state that has been published since the last call; None while there is none.

        Raises `UserError` with the path and the free bytes when the disk is full; what was saved before stays valid.
        Raises `Superseded` when a later attempt owns the unit, `RuntimeError` when rank 0 cannot see what others wrote.
        """
        return self.wait() if self._pending is not None and self._pending.done() else None

    def wait(self) -> Saved | None:
        """Wait for the state that is being written, if any; returns and raises what `finished` does."""
        pending, self._pending = self._pending, None
        return None if pending is None else pending.result()

    def _write(self, copy: HostCopy, images: int, loop: dict[str, Any], started: float, copy_seconds: float) -> Saved:
        """Write this rank's part, and publish the state on rank 0 when all ranks have confirmed theirs."""
        staged = self._new_folder(images)
        own = self._written(copy, staged)
        reports: list[list[Written] | Refusal] = [[] for _ in range(self._world_size)]
        dist.all_gather_object(reports, own, group=self._group)
        for report in (own, *reports):
            if isinstance(report, Refusal):
                report.throw()
        if dist.get_rank() == 0:
            files = [file for report in reports if isinstance(report, list) for file in report]
            try:
                self._publish(staged, files, images, loop)
            except (OSError, UserError) as error:
                self._refusal(staged, error.__cause__ or error).throw()
        return Saved(images, copy_seconds, time.time() - started)

    def _written(self, copy: HostCopy, staged: Path) -> "list[Written] | Refusal":
        """Write this rank's part and return its files, or the reason for which the disk does not take them."""
        try:
            files = _describe(copy.write(staged), staged)
            if self._local_rank == 0:
                # What lies in this node's memory only is lost with it; no other node can sync it.
                atomic.sync(staged)
        except OSError as error:
            return self._refusal(staged, error)
        return files

    def _new_folder(self, images: int) -> Path:
        """Make a folder on rank 0, under a name that was never used before, and return it on all ranks.

        On a node that has cached a name from an earlier save it may still mean the state that was published since. And
        an attempt whose node Slurm has given up may still be writing into its folder.
        """
        shared: list[str | Refusal] = [f".staged-{self._attempt.number}-{images}-{atomic.unused()}"]
        if dist.get_rank() == 0:
            try:
                self._clear_staged()
                inside.make(self._folder / str(shared[0]))
            except OSError as error:
                shared = [self._refusal(self._folder, error)]
        dist.broadcast_object_list(shared, src=0, group=self._group)
        if isinstance(shared[0], Refusal):
            shared[0].throw()
        return self._folder / str(shared[0])

    def _clear_staged(self) -> None:
        """Remove what earlier attempts left half-written, and nothing of a later one."""
        for folder in self._folder.glob(".staged-*"):
            number = folder.name.removeprefix(".staged-").partition("-")[0]
            if number.isdecimal() and int(number) <= self._attempt.number:
                _remove(folder)

    def _refusal(self, staged: Path, error: BaseException) -> "Refusal":
        """Describe why a state could not be written, after removing what was staged of it."""
        free = atomic.free_bytes(self._folder)
        if staged != self._folder:
            _remove(staged)
        needed = max((sum(file.size for file in _files(state)) for _, state in self._states()), default=0)
        size = f" of about {needed} bytes" if needed else ""
        reason = getattr(error, "strerror", None) or error
        text = f"{staged}: cannot save the training state{size}, {free} bytes are free ({reason})"
        return Refusal(text, getattr(error, "errno", None))

    def agree_on_newest(self) -> tuple[list[TensorFile], dict[str, Any]] | None:
        """Agree on the newest intact state, on all ranks: its open files, its content; None where no state is intact.

        Rank 0 lists the states, as a file system may show other ranks others; the ranks share the comparison of the
        files' digests, which takes as long as reading them. What is loaded comes from the files that were open then,
        whatever has their names by now.
        """
        shared = [self.candidates() if dist.get_rank() == 0 else []]
        dist.broadcast_object_list(shared, src=0)
        for folder, state in shared[0]:
            files, faults = list[TensorFile](), list[str | None]([None] * self._world_size)
            with ExitStack() as stack:
                own_fault = _open(folder, _files(state), dist.get_rank(), self._world_size, files, stack)
                dist.all_gather_object(faults, own_fault)
                fault = next(filter(None, faults), None)
                if fault is None:
                    stack.pop_all()
                    return files, state
            if dist.get_rank() == 0:
                print(f"{fault}: {folder} is torn; passing over it", flush=True)
        return None

    def candidates(self) -> list[tuple[Path, dict[str, Any]]]:
        """List the states that could be continued, newest first; raises `UserError` for one of an earlier version."""
        for fault in training_states.faults(self._folder):
            print(f"{fault}; passing over it", flush=True)
        candidates = self._states()[::-1]
        for folder, state in candidates:
            if state.get("format") != FORMAT:
                raise UserError(
                    f"{folder} was saved by an earlier version of hpcddm; go on with that one, or delete the folder to"
                    " start again"
                )
        return candidates

    def _publish(self, staged: Path, files: list[Written], images: int, loop: dict[str, Any]) -> None:
        """Publish the files that all ranks have confirmed as a state, if rank 0 can see all of them."""
        if fault := _unseen(staged, files):
            raise RuntimeError(f"{fault}; the training state at {images} images is not published")
        state = {
            "format": FORMAT,
            "images": images,
            "trajectory": self._trajectory,
            "attempt": self._attempt.number,
            "world_size": self._world_size,
            **self._resources,
            "files": [asdict(file) for file in files],
            "loop": loop,
        }
        atomic.write_json(staged / STATE, state)
        self._attempt.require_ownership()
        target = self._folder / training_states.name_of(images)
        _remove(target)
        inside.move(staged, target)
        atomic.sync(self._folder)
        for old, _ in self._states()[:-KEPT]:
            _remove(old)

    def _states(self) -> list[tuple[Path, dict[str, Any]]]:
        return training_states.of_training(self._folder, self._trajectory, self._most_images)


def _remove(folder: Path) -> None:
    """Remove a state, as far as that is possible, below the unit's folder, where no link is followed."""
    with suppress(OSError):
        inside.remove(folder, folder.parent.parent)


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


def _open(
    folder: Path, written: list[Written], rank: int, ranks: int, files: list[TensorFile], stack: ExitStack
) -> str | None:
    """Open the files of a state; return what is wrong with the first that is missing, or is not as its rank wrote it.

    A rank hashes only its share of them. files, stack: what is opened is added there.
    """
    names = fresh.names(folder)
    for number, file in enumerate(written):
        path = folder / file.name
        try:
            if file.name not in names:
                return f"{path} is missing"
            files.append(stack.enter_context(TensorFile(path)))
            if number % ranks == rank and files[-1].read({}) != file.sha256:
                return f"{path} is not what rank {file.rank} wrote"
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
        except Unreadable as error:
            return str(error)
    return None


def _files(state: dict[str, Any]) -> list[Written]:
    return [Written(**file) for file in state["files"]] if state.get("format") == FORMAT else []
