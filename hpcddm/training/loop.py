"""Training loop of all networks; the caller supplies a model, a loss and samples."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic

import torch
from torch import nn

from hpcddm.config.training import Training
from hpcddm.data.batch import B, Batches
from hpcddm.data.loader import Loader
from hpcddm.errors import require
from hpcddm.files import atomic, tensors
from hpcddm.jobs.environment import Ranks
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.stopping import Stopped
from hpcddm.jobs.unit import Unit
from hpcddm.jobs.watchdog import Watchdog
from hpcddm.runs import manifest
from hpcddm.runs.files import CURVE, WEIGHTS
from hpcddm.runs.weights_files import Kept
from hpcddm.training import blocks, process_group
from hpcddm.training.agreement import Agreement
from hpcddm.training.checkpoints import Checkpoints, Saved
from hpcddm.training.engine import Engine
from hpcddm.training.log import TrainingLog
from hpcddm.training.looks import Looks
from hpcddm.training.meters import MeanLoss, Progress, passes
from hpcddm.training.outcomes import Outcomes
from hpcddm.training.snapshots import KeptWeights


@dataclass(frozen=True)
class Task(Generic[B]):
    """Model, loss and samples of one training: `loss(model, batch)` gives one value per image, (N,)."""

    seed: int
    """Seed of the network's initial weights."""
    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, B], torch.Tensor]
    batches: Batches[B]
    to_model: Callable[[torch.Tensor], torch.Tensor]
    """Function from what batches hold of images to what the network sees, on their device."""
    start: Callable[[nn.Module], None] | None = None
    """Function that sets the network's initial weights; not called where a saved state is loaded."""
    flops_per_image: Callable[[], int] | None = None
    """Function that counts the FLOPs of a training image, forward and backward, for the TFLOP/s that are shown."""
    looks: Looks | None = None
    """Looks at the network on the way, for TensorBoard."""
    batch_note: str = ""
    """Text about the batch for the first line of the log, where a key of the experiment counts several networks'."""


@dataclass(frozen=True)
class Trained:
    """Output files and results of a training."""

    outputs: list[str]
    results: dict[str, Any]


def train(task: Task[B], training: Training, unit: Unit, kept: Kept | None = None) -> Trained:
    """Train until `training.images` are seen and write the EMA weights and the loss curve.

    kept: what is kept beside these weights; by default nothing.
    A batch whose gradient is not finite is skipped and counted. Resuming is exact: the weights do not depend on where,
    or how often, the training was interrupted.
    Raises `Stopped`, with everything saved, when a stop was requested.
    """
    ranks = unit.ranks
    require(
        training.batch % ranks.world_size == 0,
        f"{ranks.world_size} ranks cannot share a batch of {training.batch} evenly",
    )
    # Before the seed: counting builds a network, which draws random numbers.
    flops_per_image = task.flops_per_image() if task.flops_per_image and ranks.rank == 0 else None
    device = process_group.join(unit)
    checkpoints, agreement = Checkpoints(unit, training.images), Agreement(unit.resources.agree_every)
    engine, progress = _start(task, training, unit, checkpoints, device)
    mean_loss, log = MeanLoss(progress, device), TrainingLog(unit, training, progress, flops_per_image, device)
    kept_weights = KeptWeights(kept or Kept(), progress, unit)
    # More images may have been asked for, and a snapshot at the end of before.
    kept_weights.write_snapshots(engine, progress)
    outcomes = Outcomes(progress, mean_loss, log, unit)
    saved_at = time.time()

    with (
        Watchdog(60 * unit.watchdog_minutes, partial(unit.attempt.close, Outcome.FAILED)) as watchdog,
        Loader(_reading(task, device), _own_shares(progress.images, training, ranks), unit.data_threads) as loader,
    ):
        for batch in loader:
            losses = []
            for part in batch.to(device, task.to_model).split(engine.micro_batches):
                losses.append(task.loss(engine.model, part))
                engine.backward(losses[-1].mean())

            progress.images += training.batch
            outcomes.add(torch.cat(losses), engine.step(progress.images))
            is_last = progress.images >= training.images
            is_logged = passes(training.log_images, progress.images, training.batch)
            is_agreed = agreement.is_due() or is_last
            if is_logged or is_agreed:
                outcomes.settle()

            log.beat(progress)
            if is_logged and mean_loss.images > 0:
                progress.curve.append((progress.images, _finite(mean_loss.take(), progress, unit)))
                log.write(progress, engine.gradient_norm(), loader.take_waited())
            if task.looks is not None and passes(task.looks.interval, progress.images, training.batch):
                log.look(task.looks.take(engine, device), progress)
            # Before any state that lies beyond it.
            kept_weights.write_snapshots(engine, progress)
            saving_seconds = checkpoints.saving_seconds
            if saving_seconds is None or saving_seconds < 60 * unit.watchdog_minutes:
                watchdog.touch()

            if not is_agreed:
                continue
            is_save_due = time.time() - saved_at > 60 * training.checkpoint_minutes and saving_seconds is None
            stop, save = agreement.reach(unit.stop.reason is not None, is_save_due and ranks.rank == 0)
            _report(checkpoints.wait() if stop or save or is_last else checkpoints.finished(), progress, log, unit)
            if stop or save or is_last:
                saved_at = time.time()
                _save(engine, progress, mean_loss, checkpoints)
            if stop or is_last:
                watchdog.touch()
                _report(checkpoints.wait(), progress, log, unit)
            if stop:
                process_group.leave()
                raise Stopped(unit.stop.reason or "a stop was requested of another rank")

    log.close()
    outputs = kept_weights.write_last(engine)
    if ranks.rank == 0:
        atomic.write_json(unit.folder / CURVE, progress.curve)
    process_group.leave()
    results = {"skipped_steps": progress.skipped} | progress.changes()
    return Trained([*outputs, CURVE], results)


def count_micro_batches(share: int, most: int | None) -> int:
    """Count the equal parts of a rank's share of a batch, each of `most` images or fewer; one where `most` is None."""
    fewest = 1 if most is None else -(-share // most)
    return next(parts for parts in range(fewest, share + 1) if share % parts == 0)


def load_weights(model: nn.Module, folder: Path, name: str = WEIGHTS) -> nn.Module:
    """Fill a model with weights that a unit's training has kept and make it ready for inference.

    Raises `UserError` naming the file where its bytes are not those of the unit's manifest, of a unit that is complete,
    and the tensor that is another than the model's, or not finite.
    """
    tensors.load(model, folder / name, manifest.stated_digest(folder, name))
    return model.eval().requires_grad_(False)


def _start(
    task: Task[B], training: Training, unit: Unit, checkpoints: Checkpoints, device: torch.device
) -> tuple[Engine, Progress]:
    """Build the model and continue from the newest state, or from the beginning where there is none."""
    torch.manual_seed(task.seed)
    model, progress = task.build(), Progress()
    resumable = checkpoints.agree_on_newest()
    if resumable is None and task.start is not None:
        task.start(model)
    resources = unit.resources
    prepared = blocks.prepare(model, resources.checkpoint_blocks, resources.compile_blocks)
    micro_batches = count_micro_batches(training.batch // unit.ranks.world_size, resources.micro_batch)
    engine = Engine(model, training, unit.ranks, device, resources.zero_stage, micro_batches)
    if resumable is not None:
        files, state = resumable
        engine.load(files)
        progress = Progress(**state["loop"])
        engine.set_scaler_state(progress.scaler)
    progress.note(unit.ranks.world_size, resources.zero_stage, micro_batches)
    if unit.ranks.rank == 0:
        print(
            f"{unit.key}: {progress.images} of {training.images} images seen,"
            f" {training.batch} images per step{f' ({task.batch_note})' if task.batch_note else ''},"
            f" {unit.ranks.world_size} ranks, {task.batches.order.size} samples, {device}"
            + (f"; {prepared}" if prepared else ""),
            flush=True,
        )
    return engine, progress


def _reading(task: Task[B], device: torch.device) -> Callable[[range], B]:
    """Return the function that makes a batch in the loader's threads, in memory from which the device can read it."""
    read = task.batches.read
    return read if device.type == "cpu" else lambda sample_indices: read(sample_indices).pinned()


def _own_shares(images_seen: int, training: Training, ranks: Ranks) -> Iterator[range]:
    """Yield the indices of this rank's images in every batch that follows so many images."""
    share = training.batch // ranks.world_size
    for first in range(images_seen, training.images, training.batch):
        yield range(first + share * ranks.rank, first + share * (ranks.rank + 1))


def _finite(loss: float, progress: Progress, unit: Unit) -> float:
    """Return the loss; raises `UserError` where it is not finite."""
    require(math.isfinite(loss), f"{unit.key}: the loss is {loss} at {progress.images} images; lower the learning_rate")
    return loss


def _save(engine: Engine, progress: Progress, mean_loss: MeanLoss, checkpoints: Checkpoints) -> None:
    """Begin to save a training state; collective."""
    progress.loss_sums, progress.loss_images = mean_loss.sums(), mean_loss.images
    progress.scaler = engine.scaler_state()
    checkpoints.save(engine, progress.images, asdict(progress))


def _report(saved: Saved | None, progress: Progress, log: TrainingLog, unit: Unit) -> None:
    """Report a published state, if there is one, and leave before the allocation ends in time to write another one."""
    if saved is None:
        return
    unit.attempt.results["images"] = saved.images
    unit.stop.reserve_seconds(2 * saved.seconds)
    log.saved(progress, saved)
