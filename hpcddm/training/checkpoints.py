"""Training states that are whole or not there: staged, synced, described, renamed; the last two are kept."""

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from hpcddm.errors import UserError
from hpcddm.rundir import atomic
from hpcddm.runtime.unit import Unit
from hpcddm.training.engine import Engine

KEPT = 2
PROBE_BYTES = 1 << 20
"""A disk that does not take so much more is full."""


class Checkpoints:
    """The training states of one unit, below its folder `state/`."""

    def __init__(self, unit: Unit) -> None:
        self._folder = unit.state
        self._fingerprint = unit.fingerprint
        self._world_size = unit.ranks.world_size
        self._local_rank = unit.ranks.local_rank
        self._attempt = unit.attempt

    def save(self, engine: Engine, images: int, loop: dict[str, Any]) -> float:
        """Save on all ranks together and return the seconds it took.

        Raises `UserError` with the path and the free bytes when the disk is full; what was saved before stays valid.
        Raises `Superseded` when a later attempt owns the unit.
        """
        started = time.time()
        # An attempt whose node Slurm has given up may still be writing into a folder of its own.
        staged = self._folder / f".staged-{self._attempt.number}"
        try:
            if dist.get_rank() == 0:
                self._clear_staged()
                staged.mkdir(parents=True)
            dist.barrier()
            engine.save(staged)
            dist.barrier()
            if self._local_rank == 0:
                # What lies in this node's memory only is lost with it; no other node can sync it.
                for file in staged.rglob("*"):
                    atomic.sync(file)
            dist.barrier()
            if dist.get_rank() == 0:
                self._publish(staged, images, loop)
        except Exception as error:
            if not self._is_refused(error):
                raise
            raise self._refusal(staged, error) from error
        dist.barrier()
        return time.time() - started

    def _clear_staged(self) -> None:
        """Remove what earlier attempts left half-written, and nothing of a later one."""
        for left in self._folder.glob(".staged-*"):
            number = left.name.removeprefix(".staged-")
            if number.isdigit() and int(number) <= self._attempt.number:
                shutil.rmtree(left, ignore_errors=True)

    def _is_refused(self, error: Exception) -> bool:
        """Whether the disk takes no more; a rank that waits for a dead one gets errors of the same types."""
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            return True
        try:
            with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
                return file.write(bytes(PROBE_BYTES)) < PROBE_BYTES
        except OSError:
            return True

    def _refusal(self, staged: Path, error: Exception) -> UserError:
        """What to say of a state that could not be written; the room that it took is given back first."""
        free = atomic.free_bytes(self._folder)
        shutil.rmtree(staged, ignore_errors=True)
        needed = max((sum(_read(folder)["files"].values()) for folder in self._own()), default=0)
        size = f" of about {needed} bytes" if needed else ""
        reason = getattr(error, "strerror", None) or error
        return UserError(f"{staged}: cannot save the training state{size}, {free} bytes are free ({reason})")

    def agree_on_newest(self) -> tuple[Path, dict[str, Any]] | None:
        """What rank 0 finds by `newest`, on all ranks: a file system may show them different folders."""
        found = [self.newest() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(found, src=0)
        return found[0]

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest state that is whole and belongs to this unit as it is now, with what the loop stored."""
        for folder in reversed(self._own()):
            state = _read(folder)
            if any(
                not (folder / name).is_file() or (folder / name).stat().st_size != size
                for name, size in state["files"].items()
            ):
                print(f"{folder} is torn; passing over it", flush=True)
                continue
            if state["world_size"] != self._world_size:
                raise UserError(
                    f"{folder} was saved by {state['world_size']} ranks and cannot be continued by {self._world_size};"
                    " ask for as many ranks, or delete the folder to start again"
                )
            return folder, state
        return None

    def _publish(self, staged: Path, images: int, loop: dict[str, Any]) -> None:
        files = [file for file in staged.rglob("*") if file.is_file()]
        sizes = {str(file.relative_to(staged)): file.stat().st_size for file in files}
        state = {
            "images": images,
            "fingerprint": self._fingerprint,
            "world_size": self._world_size,
            "files": sizes,
            "loop": loop,
        }
        atomic.write_json(staged / "state.json", state)
        self._attempt.require_ownership()
        target = self._folder / f"images-{images:012d}"
        shutil.rmtree(target, ignore_errors=True)
        staged.rename(target)
        atomic.sync(self._folder)
        for old in self._own()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _own(self) -> list[Path]:
        """This unit's states, oldest first. Those of a training with other settings may count more images."""
        found = [(folder, _read(folder)) for folder in sorted(self._folder.glob("images-*"))]
        return [folder for folder, state in found if state and state["fingerprint"] == self._fingerprint]


def _read(folder: Path) -> dict[str, Any] | None:
    return atomic.read_json(folder / "state.json")
