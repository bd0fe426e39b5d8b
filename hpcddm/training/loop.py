"""Training loop of all networks; the caller supplies a model, a loss and samples."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic

import torch
from torch import nn

from hpcddm.data.batch import B, Batches
from hpcddm.data.loader import Loader
from hpcddm.errors import require
from hpcddm.files import atomic, tensors
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.unit import Unit
from hpcddm.jobs.watchdog import Watchdog
from hpcddm.models.base import has_blocks, prepare_blocks
from hpcddm.runs import manifest
from hpcddm.runs.files import CURVE, WEIGHTS
from hpcddm.runs.unit_training import ResolvedTraining, UnitTraining
from hpcddm.training import compile_choice, process_group
from hpcddm.training.checkpoints import Checkpoints
from hpcddm.training.engine import Engine
from hpcddm.training.log import Observer, TrainingLog
from hpcddm.training.meters import TrainingProgress, crosses_multiple
from hpcddm.training.state_saver import StateSaver
from hpcddm.training.step_results import StepResults
from hpcddm.training.weights_writer import WeightsWriter


@dataclass(frozen=True)
class Task(Generic[B]):
    """Model, loss and samples of one training; `loss(model, batch)` returns one value per image, (N,)."""

    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, B], torch.Tensor]
    batches: Batches[B]
    to_model: Callable[[torch.Tensor], torch.Tensor]
    """Function from the images of a batch to the inputs of the network, on their device."""
    initialise: Callable[[nn.Module], None] | None = None
    """Function that sets the network's initial weights; not called if a saved state is loaded."""
    observer: Observer | None = None
    """Measurements of the network during training, for TensorBoard."""


@dataclass(frozen=True)
class TrainingResult:
    """Output files, results and digests of a training."""

    outputs: list[str]
    results: dict[str, Any]
    digests: dict[str, str]
    """SHA-256 of the weights as they were written, by path; on rank 0."""


def train(task: Task[B], resolved: ResolvedTraining, unit: Unit) -> TrainingResult:
    """Train until `settings.images` images are seen, and write the averaged weights and the loss curve.

    A batch whose gradient is not finite is skipped and counted. Resuming is exact: the weights do not depend on where
    or how often the training was interrupted.

    Args:
        task: Model, loss and samples.
        resolved: Length, batch size, seed and other numbers of the training.
        unit: Unit under training.

    Returns:
        Output files and results for the manifest.

    Raises:
        Stopped: A stop was requested; the state is saved.
        UserError: The ranks cannot share a batch evenly, or the disk is full.
    """
    training, ranks = resolved.settings, unit.ranks
    require(
        training.batch % ranks.world_size == 0,
        f"{ranks.world_size} ranks cannot share a batch of {training.batch} evenly",
    )
    device = process_group.join(unit)
    checkpoints = Checkpoints(unit, training.images)
    engine, progress = _start(task, resolved, unit, checkpoints, device)
    log = TrainingLog(unit, resolved, progress, device)
    steps, kept_weights = StepResults(training, progress, unit, log, device), WeightsWriter(training, progress, unit)
    # The experiment may now request more images, and a snapshot at the former end.
    kept_weights.write_snapshots(engine, progress)

    with (
        Watchdog(60 * unit.watchdog_minutes, partial(unit.attempt.close, Outcome.FAILED)) as watchdog,
        Loader(_batch_reader(task, device), _own_shares(progress.images, training, ranks), unit.data_threads) as loader,
    ):
        saving = StateSaver(checkpoints, training, unit, log, watchdog)
        for batch in loader:
            losses = []
            for part in batch.to(device, task.to_model).split(engine.micro_batches):
                losses.append(task.loss(engine.model, part))
                engine.backward(losses[-1].mean())
            progress.images += training.batch
            steps.add(torch.cat(losses), engine.step(progress.images))

            is_agreed = saving.is_due(progress)
            steps.report(engine, loader, is_agreed)
            if task.observer is not None and crosses_multiple(task.observer.interval, progress.images, training.batch):
                log.log_observation(task.observer.run(engine, device), progress)
            # Written before any state of a later step.
            kept_weights.write_snapshots(engine, progress)
            saving.end_step(engine, steps, progress, is_agreed)

    log.close()
    steps.require_converged()
    outputs, digests = kept_weights.write_final(engine, progress)
    if ranks.rank == 0:
        atomic.write_json(unit.folder / CURVE, progress.curve)
    process_group.leave()
    results = {"skipped_steps": progress.skipped} | progress.resource_changes()
    return TrainingResult([*outputs, CURVE], results, digests)


def count_micro_batches(share: int, max_images: int | None) -> int:
    """Count the micro batches of a rank: the fewest equal parts of its share of a batch that respect the limit.

    Args:
        share: Number of a rank's images per step.
        max_images: Largest number of images in a micro batch; None for no limit.

    Examples:
        >>> count_micro_batches(share=12, max_images=5)
        3
    """
    fewest = 1 if max_images is None else -(-share // max_images)
    return next(parts for parts in range(fewest, share + 1) if share % parts == 0)


def load_weights(model: nn.Module, folder: Path, name: str = WEIGHTS) -> nn.Module:
    """Load weights that a unit's training has written into a model, and prepare the model for inference.

    Args:
        model: Network to fill.
        folder: Folder of the unit.
        name: Name of the file in the folder.

    Raises:
        UserError: The file differs from the manifest of a complete unit, or a tensor does not fit or is not finite.
    """
    tensors.load(model, folder / name, manifest.recorded_digest(folder, name))
    return model.eval().requires_grad_(False)


def _start(
    task: Task[B], resolved: ResolvedTraining, unit: Unit, checkpoints: Checkpoints, device: torch.device
) -> tuple[Engine, TrainingProgress]:
    """Build the model and resume from the newest state, or start from the beginning if there is none."""
    torch.manual_seed(resolved.seed)
    training, model, progress = resolved.settings, task.build(), TrainingProgress()
    resumable = checkpoints.agree_on_newest()
    if resumable is None and task.initialise is not None:
        task.initialise(model)
    resources, kept = unit.resources, resumable and bool(resumable[1].get("compiled"))
    flops = resolved.flops_per_image * training.images
    if has_blocks(model):
        checkpoints.compilation = compile_choice.agree(resources, device.type, flops, kept)
    prepared = prepare_blocks(model, resources.checkpoint_blocks, checkpoints.compilation)
    micro_batches = count_micro_batches(training.batch // unit.ranks.world_size, resources.micro_batch)
    engine = Engine(model, training, unit.ranks, device, resources.zero_stage, micro_batches)
    if resumable is not None:
        files, state = resumable
        engine.load(files)
        progress = TrainingProgress(**state["loop"])
        engine.set_scaler_state(progress.scaler)
    progress.note_resources(unit.ranks.world_size, resources.zero_stage, micro_batches)
    if unit.ranks.rank == 0:
        print(
            f"{unit.key}: {progress.images} of {training.images} images seen,"
            f" {training.batch} images per step{f' ({training.batch_note})' if training.batch_note else ''},"
            f" {unit.ranks.world_size} ranks, {task.batches.order.size} samples, {device}"
            + (f"; {prepared}" if prepared else ""),
            flush=True,
        )
    return engine, progress


def _batch_reader(task: Task[B], device: torch.device) -> Callable[[range], B]:
    """Return the function that reads a batch in the loader's threads, into pinned memory for a GPU."""
    read = task.batches.read
    return read if device.type == "cpu" else lambda sample_indices: read(sample_indices).pinned()


def _own_shares(images_seen: int, training: UnitTraining, ranks: Ranks) -> Iterator[range]:
    """Yield the indices of this rank's images in every batch after the images seen."""
    share = training.batch // ranks.world_size
    for first in range(images_seen, training.images, training.batch):
        yield range(first + share * ranks.rank, first + share * (ranks.rank + 1))
