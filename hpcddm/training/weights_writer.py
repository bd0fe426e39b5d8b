"""Weights that a training keeps as outputs: at stated numbers of images, and those of every average at its end."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpcddm.errors import UserError
from hpcddm.files import atomic, guarded_writes, nfs_reads, tensors
from hpcddm.files.tensors import save_tensors
from hpcddm.jobs.unit import Unit
from hpcddm.runs.unit_training import UnitTraining
from hpcddm.runs.weights_files import first_missing_snapshot, missing_snapshot_error, weights_name
from hpcddm.training.engine import Engine
from hpcddm.training.meters import TrainingProgress, diverged_error


class WeightsWriter:
    """Files of averaged weights that one training writes.

    The progress records the written files of each snapshot, and every later state contains the progress: such a state
    implies that the files exist. Raises `UserError` on all ranks if the training is past a snapshot and some of its
    files are missing.
    """

    def __init__(self, training: UnitTraining, progress: TrainingProgress, unit: Unit) -> None:
        self._training, self._wanted, self._unit = training, training.by_experiment_number, unit
        survey: list[Any] = [self._survey(progress) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(survey, src=0)
        self._intact, fault = survey[0]
        if fault is not None:
            raise UserError(fault)

    def write_snapshots(self, engine: Engine, progress: TrainingProgress) -> None:
        """Write the snapshots at just so many images that are not there yet; collective."""
        reached = [number for number, images in self._wanted.items() if images == progress.images]
        for number in (number for number in reached if number not in self._intact):
            digests = self._write(engine, number)
            if dist.get_rank() == 0:
                taken = {"images": progress.images, "files": digests}
                progress.snapshots = progress.snapshots | {str(number): taken}
                print(f"snapshot {number} at {progress.images} images, {len(digests)} files", flush=True)

    def write_final(self, engine: Engine, progress: TrainingProgress) -> tuple[list[str], dict[str, str]]:
        """Write the weights of the end; return all outputs of weights, and their SHA-256 on rank 0; collective."""
        digests = self._write(engine, None)
        for taken in progress.snapshots.values():
            digests |= taken["files"]
        names = [weights_name(number, average) for number in (None, *self._wanted) for average in engine.average_names]
        return names, digests

    def _write(self, engine: Engine, number: int | None) -> dict[str, str]:
        """Write every average as it is now; return the SHA-256 of each file by its name, on rank 0."""
        digests = {}
        for average in engine.average_names:
            weights, name = engine.averaged_weights(average), weights_name(number, average)
            if dist.get_rank() == 0:
                _write_weights(weights, self._unit.folder / name, self._unit, self._training)
                digests[name] = atomic.sha256(self._unit.folder / name)
        return digests

    def _survey(self, progress: TrainingProgress) -> tuple[set[int], str | None]:
        """Return the snapshots that exist as requested, and an error if a missing one can no longer be taken."""
        intact = {number: taken for number, taken in progress.snapshots.items() if self._is_intact(taken)}
        wanted = self._wanted
        there = {int(number) for number, taken in intact.items() if wanted.get(int(number)) == taken["images"]}
        lost = first_missing_snapshot(intact, progress.images, wanted)
        if lost is None:
            return there, None
        state = f"the state at {progress.images} images"
        return there, missing_snapshot_error(self._unit.key, lost, wanted[lost], progress.snapshots, state)

    def _is_intact(self, taken: dict[str, Any]) -> bool:
        files = {self._unit.folder / name: digest for name, digest in taken["files"].items()}
        return all(nfs_reads.exists(file) and atomic.sha256(file) == digest for file, digest in files.items())


def _write_weights(weights: dict[str, torch.Tensor], file: Path, unit: Unit, training: UnitTraining) -> None:
    """Write averaged weights to a file of the unit, durably; for rank 0.

    Raises `UserError`, before writing, where a weight is not finite, and where the disk does not take the file.
    """
    broken = tensors.first_not_finite(weights)
    if broken is not None:
        raise diverged_error(unit.key, f"its weights are not finite, first '{broken}'", training)
    unit.attempt.require_ownership()
    try:
        if not file.parent.is_dir():
            guarded_writes.make_folder(file.parent)
            atomic.sync(unit.folder)
        with atomic.replacing(file) as staged:
            save_tensors(weights, staged)
    except OSError as error:
        free = atomic.free_bytes(unit.folder)
        raise UserError(f"{file}: cannot write the weights, {free} bytes are free ({error.strerror})") from error
