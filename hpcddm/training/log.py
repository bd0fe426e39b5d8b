"""Figures and observations of a running training, in the log of rank 0, in TensorBoard and in the heartbeat."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from tensorboard.summary.writer import event_file_writer  # type: ignore[import-untyped]
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from hpcddm.files import atomic, guarded_writes
from hpcddm.jobs.unit import Unit
from hpcddm.runs.unit_training import ResolvedTraining
from hpcddm.training.checkpoints import PublishedState
from hpcddm.training.engine import Engine
from hpcddm.training.meters import Throughput, TrainingProgress, peak_memory_gib, teraflops


@dataclass(frozen=True)
class Observation:
    """Losses of a network by name, and the images (N, H, W, C) that it draws, uint8, on rank 0."""

    losses: dict[str, float]
    images: np.ndarray | None


@dataclass(frozen=True)
class Observer:
    """Function that measures a network on all ranks, and the interval between two measurements in images."""

    interval: int
    measure: Callable[[nn.Module, torch.device], Observation]

    def run(self, engine: Engine, device: torch.device) -> Observation:
        """Measure the averaged network; collective. Weights and random streams stay unchanged.

        Args:
            engine: Model under training.
            device: Device of this rank.
        """
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.no_grad(), engine.averaged_network():
            return self.measure(engine.model, device)


event_file_writer.socket = SimpleNamespace(gethostname=lambda: "rank0")
"""Replaces the host in the names of TensorBoard's files, since a unit may be copied to other hosts."""

FORMATS = {
    "loss": "loss {:.4f}",
    "learning_rate": "learning rate {:.3g}",
    "gradient_norm": "gradient norm {:.3g}",
    "images_per_second": "{:,.1f} images/s",
    "data_wait": "waiting for data {:.1%}",
    "tflops": "{:.3g} TFLOP/s",
    "memory_gib": "{:.2f} GiB",
    "skipped": "{:.0f} steps skipped",
}
"""Format of each figure in a line of the log; heartbeat and TensorBoard use the same names."""


def line(images: int, total: int, figures: dict[str, float]) -> str:
    """Format figures as one line of the log.

    Args:
        images: Number of images seen.
        total: Length of the training in images.
        figures: Values by their names in `FORMATS`.

    Examples:
        >>> line(64_000, 1_000_000, {"loss": 0.25, "images_per_second": 1200.0})
        '64,000 of 1,000,000 images: loss 0.2500, 1,200.0 images/s'
    """
    parts = [template.format(figures[name]) for name, template in FORMATS.items() if name in figures]
    return f"{images:,} of {total:,} images: {', '.join(parts)}"


class TrainingLog:
    """Log of one training on rank 0; on other ranks all methods do nothing.

    Figures: mean loss since the last log; learning rate and gradient norm of the last step; images/s and TFLOP/s of all
    ranks together since the last log; fraction of that time that rank 0 waited for data; peak memory of rank 0; number
    of skipped steps, if any.

    Args:
        unit: Unit under training.
        training: The training; TFLOP/s are omitted unless its FLOPs per image are counted.
        progress: Progress at the start of this attempt.
        device: Device of this rank.
    """

    def __init__(
        self, unit: Unit, training: ResolvedTraining, progress: TrainingProgress, device: torch.device
    ) -> None:
        self._unit, self._training, self._device = unit, training.settings, device
        self._flops_per_image = training.flops_per_image
        self._first_images = progress.images
        self._throughput = Throughput(progress.images)
        self._figures: dict[str, float] = {"loss": progress.curve[-1][1]} if progress.curve else {}
        self._board = None
        if unit.ranks.rank == 0:
            with guarded_writes.open_folder(unit.folder / "tensorboard", make=True) as folder:
                # Open until the process ends: TensorBoard reopens its file whenever it appends.
                place = f"/proc/self/fd/{os.dup(folder)}"
            # TensorBoard overwrites an existing file of this name, so nobody may be able to predict the name.
            suffix = f".{atomic.unique_suffix()}"
            self._board = SummaryWriter(place, purge_step=progress.images + 1, filename_suffix=suffix)
            if progress.images:
                unit.heartbeat.saved(progress.images)

    def write(self, progress: TrainingProgress, gradient_norm: float | None, waited: float) -> None:
        """Measure and log all figures at a new point of the loss curve.

        Args:
            progress: Current progress.
            gradient_norm: Gradient norm of the last step, if known.
            waited: Seconds of waiting for data since the last point.
        """
        if self._board is None:
            return
        rate, seconds = self._throughput.take(progress.images)
        figures = {
            "loss": progress.curve[-1][1],
            "learning_rate": self._training.rate_at(progress.images),
            "gradient_norm": gradient_norm,
            "images_per_second": rate,
            "data_wait": waited / seconds,
            "tflops": teraflops(rate, self._flops_per_image) if self._flops_per_image else None,
            "memory_gib": peak_memory_gib(self._device),
        }
        self._figures = {name: value for name, value in figures.items() if value is not None}
        for name, value in self._with_skipped(progress).items():
            self._board.add_scalar(name, value, progress.images)
        print(line(progress.images, self._training.images, self._with_skipped(progress)), flush=True)

    def beat(self, progress: TrainingProgress) -> None:
        """Report a step in the heartbeat, with the figures of the last log; the first step begins the attempt."""
        if self._board is None:
            return
        if progress.images == self._first_images + self._training.batch:
            self._unit.attempt.begin(self._first_images, self._unit.trajectory)
        self._beat(progress)

    def log_skipped(self, end: int, progress: TrainingProgress) -> None:
        """Report a skipped step.

        Args:
            end: Number of images seen after the step.
            progress: Current progress.
        """
        if self._board is None:
            return
        images = f"images {end - self._training.batch} to {end - 1}"
        print(f"{images}: their gradient is not finite; step {progress.skipped} that is skipped", flush=True)

    def log_observation(self, observation: Observation, progress: TrainingProgress) -> None:
        """Write the losses and images of an observation to TensorBoard, and the losses to the log."""
        if self._board is None:
            return
        for name, loss in observation.losses.items():
            self._board.add_scalar(name, loss, progress.images)
        if observation.images is not None:
            self._board.add_images("samples", observation.images, progress.images, dataformats="NHWC")
        losses = ", ".join(f"{name} {loss:.4f}" for name, loss in observation.losses.items())
        print(f"looked at {progress.images} images{': ' if losses else ''}{losses}", flush=True)

    def log_saved(self, progress: TrainingProgress, saved: PublishedState) -> None:
        """Report a saved state, after flushing TensorBoard so that its file covers the same steps."""
        if self._board is None:
            return
        self._board.flush()
        self._unit.heartbeat.saved(saved.images)
        self._beat(progress)
        beside = saved.seconds - saved.copy_seconds
        print(f"saved at {saved.images} images in {saved.copy_seconds:.2f} + {beside:.2f} s beside", flush=True)

    def close(self) -> None:
        """Close the file of TensorBoard."""
        if self._board is not None:
            self._board.close()

    def _beat(self, progress: TrainingProgress) -> None:
        self._unit.heartbeat.beat(progress.images, self._training.images, **self._with_skipped(progress))

    def _with_skipped(self, progress: TrainingProgress) -> dict[str, float]:
        return self._figures | ({"skipped": progress.skipped} if progress.skipped else {})
