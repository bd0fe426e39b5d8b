"""Training loop of all networks; the caller supplies a model, a loss and samples."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from hpcddm.config import Training
from hpcddm.data.order import Order, SampleOrder
from hpcddm.data.reader import Reader, to_tensor
from hpcddm.errors import require
from hpcddm.models.checkpoints.writing import save_tensors
from hpcddm.rundir import atomic
from hpcddm.runtime.outcome import Outcome
from hpcddm.runtime.stopping import Stopped
from hpcddm.runtime.unit import Unit
from hpcddm.runtime.watchdog import Watchdog
from hpcddm.training import process_group
from hpcddm.training.checkpoints import Checkpoints
from hpcddm.training.engine import Engine

WEIGHTS, CURVE = "weights.safetensors", "curve.json"
MOST_SKIPPED = 100
"""Number of skipped steps in a row after which a training has diverged and ends."""


@dataclass(frozen=True)
class Batch:
    """Images of one step on one rank, with the data that a loss may use.

    sample_indices: indices of the images in the order of training, from which all randomness comes;
    x0: (N, C, H, W) in [-1, 1]; labels, clusters: (N,).
    """

    sample_indices: range
    x0: torch.Tensor
    labels: torch.Tensor
    clusters: torch.Tensor


@dataclass(frozen=True)
class Task:
    """Model, loss and samples of one training: `loss(model, batch)` gives one value per image, (N,)."""

    stream: str
    """Name of this training's random stream; two trainings with one stream see the same noise."""
    seed: int
    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    reader: Reader
    order: Order | None = None
    """Order of the rows; by default all rows in a new random order in every epoch."""
    start: Callable[[nn.Module], None] | None = None
    """Function that sets the network's initial weights; not called where a saved state is loaded."""


@dataclass
class Progress:
    """Progress of a training, stored with every state."""

    images: int = 0
    loss_sums: list[float] = field(default_factory=list)
    """Sum of losses since the last log, for each rank: resumed, they add up as without an interruption."""
    loss_images: int = 0
    skipped: int = 0
    """Number of steps that were not made, because a gradient was not finite."""
    curve: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """Output files and results of a training."""

    outputs: list[str]
    results: dict[str, Any]


def train(task: Task, training: Training, unit: Unit) -> Trained:
    """Train until `training.images` are seen and write the EMA weights and the loss curve.

    A batch whose gradient is not finite is skipped and counted. Resuming is exact: the weights do not depend on where,
    or how often, the training was interrupted.
    Raises `Stopped`, with everything saved, when the unit was told to leave.
    """
    world_size = unit.ranks.world_size
    require(training.batch % world_size == 0, f"{world_size} ranks cannot share a batch of {training.batch} evenly")
    device = process_group.join(unit)
    torch.manual_seed(task.seed)
    model, checkpoints = task.build(), Checkpoints(unit)
    resumable = checkpoints.agree_on_newest()
    if resumable is None and task.start is not None:
        task.start(model)
    engine = Engine(model, training, unit.ranks, device)
    progress = _resume(engine, resumable)
    if unit.ranks.rank == 0:
        print(
            f"{unit.key}: {progress.images} of {training.images} images seen, batch {training.batch},"
            f" {unit.ranks.world_size} ranks, {len(task.reader)} samples, {device}",
            flush=True,
        )
    with Watchdog(60 * unit.watchdog_minutes, partial(unit.attempt.close, Outcome.FAILED)) as watchdog:
        _Loop(task, training, unit, engine, checkpoints, progress, device, watchdog).run()
    weights = engine.ema_weights()
    if unit.ranks.rank == 0:
        finite = all(values.isfinite().all() for values in weights.values())
        require(finite, f"{unit.key}: the weights are not finite; lower the learning_rate")
        unit.attempt.require_ownership()
        with atomic.replacing(unit.folder / WEIGHTS) as staged:
            save_tensors(weights, staged)
        atomic.write_json(unit.folder / CURVE, progress.curve)
    process_group.leave()
    return Trained([WEIGHTS, CURVE], {"skipped_steps": progress.skipped})


def load_weights(model: nn.Module, folder: Path) -> nn.Module:
    """Fill a model with the weights of a finished training and make it ready for inference."""
    model.load_state_dict(load_file(folder / WEIGHTS))
    return model.eval().requires_grad_(False)


def _resume(engine: Engine, resumable: tuple[Path, dict[str, Any]] | None) -> Progress:
    if resumable is None:
        return Progress()
    folder, state = resumable
    engine.load(folder)
    return Progress(**state["loop"])


class _Loop:
    def __init__(
        self,
        task: Task,
        training: Training,
        unit: Unit,
        engine: Engine,
        checkpoints: Checkpoints,
        progress: Progress,
        device: torch.device,
        watchdog: Watchdog,
    ) -> None:
        self.watchdog = watchdog
        self.task, self.training, self.unit, self.engine = task, training, unit, engine
        self.checkpoints, self.progress, self.device = checkpoints, progress, device
        self.order = task.order or SampleOrder(task.seed, task.stream, len(task.reader))
        self.skipped_in_a_row = 0
        self.saved_at = time.time()
        self.saved_images = self.resumed_images = progress.images
        self.board = (
            SummaryWriter(unit.folder / "tensorboard", purge_step=progress.images + 1) if self.is_first else None
        )
        before = progress.loss_sums[unit.ranks.rank] if progress.loss_sums else 0.0
        self.loss_sum = torch.tensor(before, dtype=torch.float64, device=device)
        if progress.images:
            unit.heartbeat.saved(progress.images)

    @property
    def is_first(self) -> bool:
        return self.unit.ranks.rank == 0

    def run(self) -> None:
        """Step until all images are seen; save when it is time, and leave when any rank was told to."""
        while self.progress.images < self.training.images:
            self._step()
            self.watchdog.touch()
            stop, save = self._agree()
            if stop or save:
                self._save()
            if stop:
                process_group.leave()
                raise Stopped(self.unit.stop.reason or "another rank was told to stop")
        if self.progress.images > self.saved_images:
            self._save()
        if self.board:
            self.board.close()

    def _step(self) -> None:
        batch = self._batch()
        losses = self.task.loss(self.engine.model, batch)
        self.progress.images += self.training.batch
        if self.engine.step(losses.mean(), self.progress.images):
            self.loss_sum += losses.detach().sum()
            self.progress.loss_images += len(losses)
            self.skipped_in_a_row = 0
        else:
            self._skip()
        self._log()

    def _skip(self) -> None:
        self.progress.skipped += 1
        self.skipped_in_a_row += 1
        end = self.progress.images
        if self.is_first:
            images = f"images {end - self.training.batch} to {end - 1}"
            print(f"{images}: their gradient is not finite; step {self.progress.skipped} that is skipped", flush=True)
        diverged = f"{self.unit.key}: no gradient was finite in {MOST_SKIPPED} steps up to {end} images"
        require(self.skipped_in_a_row < MOST_SKIPPED, f"{diverged}; lower the learning_rate")

    def _batch(self) -> Batch:
        """Read this rank's slice of the next global batch."""
        share = self.training.batch // self.unit.ranks.world_size
        start = self.progress.images + share * self.unit.ranks.rank
        sample_indices = range(start, start + share)
        dataset_indices = self.order.dataset_indices(sample_indices)
        reader = self.task.reader
        tensors = (
            to_tensor(reader.images(dataset_indices)),
            reader.labels(dataset_indices),
            reader.clusters(dataset_indices),
        )
        return Batch(sample_indices, *(tensor.to(self.device, non_blocking=True) for tensor in tensors))

    def _log(self) -> None:
        progress, images = self.progress, self.progress.images
        if self.is_first:
            if images == self.resumed_images + self.training.batch:
                self.unit.attempt.begin(self.resumed_images, self.unit.fingerprint)
            self.unit.heartbeat.beat(images, self.training.images, **self._figures())
        if images // self.training.log_images == (images - self.training.batch) // self.training.log_images:
            return
        if progress.loss_images == 0:
            return
        mean = (self.loss_sum / progress.loss_images).float()
        dist.all_reduce(mean)
        value = mean.item() / self.unit.ranks.world_size
        require(
            math.isfinite(value), f"{self.unit.key}: the loss is {value} at {images} images; lower the learning_rate"
        )
        progress.curve.append((images, value))
        self.loss_sum.zero_()
        progress.loss_images = 0
        if self.board:
            self.board.add_scalar("loss", progress.curve[-1][1], images)

    def _figures(self) -> dict[str, float]:
        """Return the figures of a heartbeat: the last loss, and the number of skipped steps if any."""
        figures = {"loss": self.progress.curve[-1][1]} if self.progress.curve else {}
        return figures | ({"skipped": self.progress.skipped} if self.progress.skipped else {})

    def _agree(self) -> tuple[bool, bool]:
        """Agree on all ranks on (stop, save): any rank was told to stop; a checkpoint is due on rank 0."""
        stop = self.unit.stop.reason is not None
        due = self.is_first and time.time() - self.saved_at > 60 * self.training.checkpoint_minutes
        if self.unit.ranks.world_size == 1:
            return stop, due
        flags = torch.tensor([stop, due], dtype=torch.int32, device=self.device)
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        stop, save = flags.tolist()
        return bool(stop), bool(save)

    def _save(self) -> None:
        sums = [torch.empty_like(self.loss_sum) for _ in range(self.unit.ranks.world_size)]
        dist.all_gather(sums, self.loss_sum)
        self.progress.loss_sums = [value.item() for value in sums]
        seconds = self.checkpoints.save(self.engine, self.progress.images, vars(self.progress))
        self.saved_at, self.saved_images = time.time(), self.progress.images
        self.unit.attempt.results["images"] = self.progress.images
        self.unit.stop.reserve_seconds(2 * seconds)
        if self.is_first:
            self.unit.heartbeat.saved(self.progress.images)
            self.unit.heartbeat.beat(self.progress.images, self.training.images, **self._figures())
            print(f"saved at {self.progress.images} images in {seconds:.2f} s", flush=True)
