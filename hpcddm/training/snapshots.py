"""Snapshots of a training: the averaged weights at stated numbers of images, each an output of the unit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpcddm.errors import UserError, require
from hpcddm.models.checkpoints.writing import save_tensors
from hpcddm.pipeline.snapshots import impossible, missing, snapshot_file
from hpcddm.rundir import atomic, fresh
from hpcddm.runtime.unit import Unit
from hpcddm.training.engine import Engine
from hpcddm.training.meters import Progress


class Snapshots:
    """Snapshots that one training takes.

    wanted: numbers of images of this unit by the number in the experiment, whose name the file bears. What was taken
    stands in the progress, and so in every state that is saved later: such a state implies that the files are there.
    Raises `UserError`, on all ranks, where the training is past a snapshot that is not there whole.
    """

    def __init__(self, wanted: Mapping[int, int], progress: Progress, unit: Unit) -> None:
        self._wanted, self._unit = wanted, unit
        faults = [self._fault(progress) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(faults, src=0)
        if faults[0] is not None:
            raise UserError(faults[0])

    def take(self, engine: Engine, progress: Progress) -> None:
        """Write the snapshots that this step has reached; collective."""
        due = [number for number, images in self._wanted.items() if images == progress.images]
        if not due:
            return
        weights = engine.ema_weights()
        if dist.get_rank() > 0:
            return
        for number in due:
            file = self._unit.folder / snapshot_file(number)
            write_weights(weights, file, self._unit)
            taken = {"images": progress.images, "sha256": atomic.sha256(file)}
            progress.snapshots = progress.snapshots | {str(number): taken}
            print(f"snapshot {number} at {progress.images} images: {file.name}", flush=True)

    def outputs(self) -> list[str]:
        """List the files that are there at the end of the training."""
        return [snapshot_file(number) for number in self._wanted]

    def _fault(self, progress: Progress) -> str | None:
        """Describe the first snapshot that the training has passed and that is not there as it was taken, or None."""
        intact = {number: taken for number, taken in progress.snapshots.items() if self._is_intact(number, taken)}
        lost = missing(intact, progress.images, self._wanted)
        if lost is None:
            return None
        return impossible(self._unit.key, lost, self._wanted[lost], f"the state at {progress.images} images")

    def _is_intact(self, number: str, taken: dict[str, Any]) -> bool:
        file = self._unit.folder / snapshot_file(int(number))
        return fresh.exists(file) and atomic.sha256(file) == taken["sha256"]


def write_weights(weights: dict[str, torch.Tensor], file: Path, unit: Unit) -> None:
    """Write averaged weights to a file of the unit, durably; for rank 0.

    Raises `UserError`, before writing, where a weight is not finite.
    """
    finite = all(values.isfinite().all() for values in weights.values())
    require(finite, f"{unit.key}: the weights are not finite; lower the learning_rate")
    unit.attempt.require_ownership()
    if not file.parent.is_dir():
        file.parent.mkdir()
        atomic.sync(unit.folder)
    with atomic.replacing(file) as staged:
        save_tensors(weights, staged)
