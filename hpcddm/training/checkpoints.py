"""Atomic training states: written in the background, synced, confirmed by every rank, then renamed.

The last two states are kept while a training runs.
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
from hpcddm.files import atomic, guarded_writes, nfs_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.tensor_file import TensorFile
from hpcddm.jobs.unit import Unit
from hpcddm.models.compiled_blocks import Compilation
from hpcddm.runs import training_states
from hpcddm.runs.training_states import FORMAT, STATE, StateFile
from hpcddm.training.engine import Engine, HostCopy

KEPT_STATES = 2
TIMEOUT = timedelta(hours=2)
"""Longest time that a rank waits for the other ranks' parts."""


@dataclass(frozen=True)
class WriteFailure:
    """Reason why a rank could not write a state, in a form that can be sent to the other ranks."""

    text: str
    errno: int | None

    def raise_error(self) -> NoReturn:
        """Raise `UserError`; its cause says whether another attempt may succeed."""
        raise UserError(self.text) from (None if self.errno is None else OSError(self.errno, os.strerror(self.errno)))


@dataclass(frozen=True)
class PublishedState:
    """A published state: writing took `seconds`, and the training paused for `copy_seconds` of them."""

    images: int
    copy_seconds: float
    seconds: float


class Checkpoints:
    """Training states of one unit, in its folder `state/`; `save` and `agree_on_newest` are collective.

    Args:
        unit: Unit under training.
        most_images: Length of the training in images; states of a longer training are not resumed.
    """

    def __init__(self, unit: Unit, most_images: int) -> None:
        self._folder, self._seal = unit.state, unit.seal
        self._most_images = most_images
        self._trajectory = unit.trajectory
        self._world_size = unit.ranks.world_size
        self._local_rank = unit.ranks.local_rank
        self._resources = {name: getattr(unit.resources, name) for name in ("zero_stage", "micro_batch")}
        self.compilation = Compilation()
        """Compilation of the network's blocks, which later attempts keep."""
        self._attempt = unit.attempt
        # A group of its own: states are written beside the training, whose messages go through others.
        self._group = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._writer = ThreadPoolExecutor(1)
        self._pending: Future[PublishedState] | None = None
        self._begun = 0.0

    @property
    def saving_seconds(self) -> float | None:
        """Seconds since the start of the current save; None if no save is running."""
        return None if self._pending is None else time.time() - self._begun

    def save(self, engine: Engine, images: int, loop: dict[str, Any]) -> None:
        """Copy the state to the host and start to write it in the background; the previous save must be finished.

        Args:
            engine: Model under training.
            images: Number of images seen.
            loop: Progress of the training loop, as JSON.
        """
        if self._pending is not None:
            raise RuntimeError("a state is being written; wait for it first")
        started = self._begun = time.time()
        copy = engine.host_copy()
        copied = time.time()
        self._pending = self._writer.submit(self._write, copy, images, loop, started, copied - started)

    def take_published(self) -> PublishedState | None:
        """Return the state that was published since the last call; None if there is none.

        Raises:
            UserError: The disk is full; the message has the path and the free bytes. Earlier states stay valid.
            Superseded: A later attempt owns the unit.
            RuntimeError: Rank 0 cannot see files that other ranks wrote.
        """
        return self.wait() if self._pending is not None and self._pending.done() else None

    def wait(self) -> PublishedState | None:
        """Wait for the current save, if any; returns and raises as `take_published` does."""
        pending, self._pending = self._pending, None
        return None if pending is None else pending.result()

    def _write(
        self, copy: HostCopy, images: int, loop: dict[str, Any], started: float, copy_seconds: float
    ) -> PublishedState:
        """Write this rank's part, and publish the state on rank 0 when all ranks have confirmed theirs."""
        staged = self._new_folder(images)
        report_of_rank = self._try_write(copy, staged)
        reports: list[list[StateFile] | WriteFailure] = [[] for _ in range(self._world_size)]
        dist.all_gather_object(reports, report_of_rank, group=self._group)
        for report in (report_of_rank, *reports):
            if isinstance(report, WriteFailure):
                report.raise_error()
        if dist.get_rank() == 0:
            files = [file for report in reports if isinstance(report, list) for file in report]
            try:
                self._publish(staged, files, images, loop)
            except (OSError, UserError) as error:
                self._refusal(staged, error.__cause__ or error).raise_error()
        return PublishedState(images, copy_seconds, time.time() - started)

    def _try_write(self, copy: HostCopy, staged: Path) -> "list[StateFile] | WriteFailure":
        """Write this rank's part and return its files, or the reason why it cannot be written."""
        try:
            files = _sync_and_hash(copy.write(staged), staged)
            if self._local_rank == 0:
                # Data that only this node's memory holds are lost with the node; no other node can sync them.
                atomic.sync(staged)
        except OSError as error:
            return self._refusal(staged, error)
        return files

    def _new_folder(self, images: int) -> Path:
        """Create a folder with an unused name on rank 0 and return it on all ranks.

        The name must be new for two reasons. A node that has cached a name from an earlier save may still resolve it to
        the state published since then. An attempt whose node Slurm has given up may still write into its folder.
        """
        shared: list[str | WriteFailure] = [f".staged-{self._attempt.number}-{images}-{atomic.unique_suffix()}"]
        if dist.get_rank() == 0:
            try:
                self._clear_staged()
                guarded_writes.make_folder(self._folder / str(shared[0]))
            except OSError as error:
                shared = [self._refusal(self._folder, error)]
        dist.broadcast_object_list(shared, src=0, group=self._group)
        if isinstance(shared[0], WriteFailure):
            shared[0].raise_error()
        return self._folder / str(shared[0])

    def _clear_staged(self) -> None:
        """Remove unfinished states of earlier attempts, but not those of later ones."""
        for folder in self._folder.glob(".staged-*"):
            number = folder.name.removeprefix(".staged-").partition("-")[0]
            if number.isdecimal() and int(number) <= self._attempt.number:
                _remove(folder)

    def _refusal(self, staged: Path, error: BaseException) -> "WriteFailure":
        """Describe why a state could not be written, after removing its unfinished files."""
        free = atomic.free_bytes(self._folder)
        if staged != self._folder:
            _remove(staged)
        needed = max((sum(file.size for file in _files(state)) for _, state in self._states()), default=0)
        size = f" of about {needed} bytes" if needed else ""
        reason = getattr(error, "strerror", None) or error
        text = f"{staged}: cannot save the training state{size}, {free} bytes are free ({reason})"
        return WriteFailure(text, getattr(error, "errno", None))

    def agree_on_newest(self) -> tuple[list[TensorFile], dict[str, Any]] | None:
        """Agree with all ranks on the newest intact state.

        Rank 0 lists the states, because a file system may show different states to different ranks. The ranks share the
        verification of the files' digests, which takes as long as reading the files. The state is later loaded from the
        same open files, even if their names then refer to other files.

        Returns:
            Open files of the state and its description; None if no state is intact.
        """
        shared = [self.resumable_states() if dist.get_rank() == 0 else []]
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

    def resumable_states(self) -> list[tuple[Path, dict[str, Any]]]:
        """List the states that this training can resume, newest first, as (folder, description).

        Raises:
            UserError: A state was saved by an earlier version of hpcddm; or, in a run with a contract, by others.
        """
        seal = self._seal()
        if seal is not None:
            seal.require_key()
        for fault in training_states.description_errors(self._folder):
            print(f"{fault}; passing over it", flush=True)
        states = self._states()
        if seal is not None:
            seal.require_own(states)
        candidates = states[::-1]
        for folder, state in candidates:
            if state.get("format") != FORMAT:
                raise UserError(
                    f"{folder} was saved by an earlier version of hpcddm; go on with that one, or delete the folder to"
                    " start again"
                )
        return candidates

    def _publish(self, staged: Path, files: list[StateFile], images: int, loop: dict[str, Any]) -> None:
        """Publish the files that all ranks have confirmed, if rank 0 can see all of them."""
        if fault := _unseen(staged, files):
            raise RuntimeError(f"{fault}; the training state at {images} images is not published")
        state = {
            "format": FORMAT,
            "images": images,
            "trajectory": self._trajectory,
            "attempt": self._attempt.number,
            "world_size": self._world_size,
            **self._resources,
            "compiled": self.compilation.active,
            "files": [asdict(file) for file in files],
            "loop": loop,
        }
        # The contract may have come since the training began.
        seal = self._seal()
        atomic.write_json(staged / STATE, state if seal is None else seal.sealed(state))
        self._attempt.require_ownership()
        target = self._folder / training_states.folder_name(images)
        _remove(target)
        guarded_writes.move(staged, target)
        atomic.sync(self._folder)
        own = [folder for folder, kept in self._states() if seal is None or seal.holds(kept)]
        for old in own[:-KEPT_STATES]:
            _remove(old)

    def _states(self) -> list[tuple[Path, dict[str, Any]]]:
        return training_states.list_states(self._folder, self._trajectory, self._most_images)


def _remove(folder: Path) -> None:
    """Remove a state as far as possible, inside the unit's folder, without following links."""
    with suppress(OSError):
        guarded_writes.remove(folder, folder.parent.parent)


def _sync_and_hash(paths: list[Path], staged: Path) -> list[StateFile]:
    """Sync this rank's files to the disk and return their sizes and digests.

    The digest is computed from the page cache while the disk is busy: 1 s per GB on one core, on all ranks at once.
    """
    written = []
    with ThreadPoolExecutor(1) as disk:
        syncs = disk.map(atomic.sync, paths)
        for path in paths:
            name = str(path.relative_to(staged))
            written.append(StateFile(name, dist.get_rank(), path.stat().st_size, atomic.sha256(path)))
        list(syncs)
    return written


def _unseen(staged: Path, files: list[StateFile]) -> str | None:
    """Describe the first reported file that rank 0 cannot see at its full size; None if there is none."""
    listed = {folder: nfs_reads.list_names(folder) for folder in {(staged / file.name).parent for file in files}}
    for file in files:
        path = staged / file.name
        size = path.stat().st_size if path.name in listed[path.parent] else None
        if size != file.size:
            problem = "is not there" if size is None else f"has {size} bytes"
            return f"{path} {problem}, but rank {file.rank} wrote {file.size} bytes"
    return None


def _open(
    folder: Path, written: list[StateFile], rank: int, ranks: int, files: list[TensorFile], stack: ExitStack
) -> str | None:
    """Open the files of a state and describe the first that is missing or differs from what its rank wrote.

    Each rank hashes only its share of the files. Open files are added to `files` and `stack`.
    """
    names = nfs_reads.list_names(folder)
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


def _files(state: dict[str, Any]) -> list[StateFile]:
    return [StateFile(**file) for file in state["files"]] if state.get("format") == FORMAT else []
