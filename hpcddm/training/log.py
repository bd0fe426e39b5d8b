"""Figures of a running training in rank 0's log, in TensorBoard and in the heartbeat."""

import os
from types import SimpleNamespace

import torch
from tensorboard.summary.writer import event_file_writer  # type: ignore[import-untyped]
from torch.utils.tensorboard import SummaryWriter

from hpcddm.config.training import Training
from hpcddm.files import atomic, inside
from hpcddm.jobs.unit import Unit
from hpcddm.training.checkpoints import Saved
from hpcddm.training.looks import Look
from hpcddm.training.meters import Progress, Throughput, peak_memory_gib, teraflops
from hpcddm.training.schedule import learning_rate

event_file_writer.socket = SimpleNamespace(gethostname=lambda: "rank0")
"""TensorBoard puts the host into the names of its files, which may travel with the unit to others."""

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
"""Form of each figure in a line of the log; the names are those in the heartbeat and in TensorBoard."""


def line(images: int, total: int, figures: dict[str, float]) -> str:
    """Format the figures at so many images as one line."""
    parts = [form.format(figures[name]) for name, form in FORMATS.items() if name in figures]
    return f"{images:,} of {total:,} images: {', '.join(parts)}"


class TrainingLog:
    """Log of one training on rank 0; on other ranks all methods do nothing.

    The figures: mean loss since the last log; learning rate and gradient norm of the last step; images/s and TFLOP/s
    of all ranks together since the last log; share of that time in which rank 0 waited for data; peak memory of
    rank 0; skipped steps, if any.
    """

    def __init__(
        self, unit: Unit, training: Training, progress: Progress, flops_per_image: int | None, device: torch.device
    ) -> None:
        self._unit, self._training, self._device = unit, training, device
        self._flops_per_image = flops_per_image
        self._first_images = progress.images
        self._throughput = Throughput(progress.images)
        self._figures: dict[str, float] = {"loss": progress.curve[-1][1]} if progress.curve else {}
        self._board = None
        if unit.ranks.rank == 0:
            with inside.opened(unit.folder / "tensorboard", make=True) as folder:
                # Open to the end of the process: TensorBoard opens its file anew for what it appends.
                place = f"/proc/self/fd/{os.dup(folder)}"
            # It writes over what has the file's name, so nobody may know that before.
            suffix = f".{atomic.unused()}"
            self._board = SummaryWriter(place, purge_step=progress.images + 1, filename_suffix=suffix)
            if progress.images:
                unit.heartbeat.saved(progress.images)

    def write(self, progress: Progress, gradient_norm: float | None, waited: float) -> None:
        """Measure and log all figures at a new point of the loss curve; waited: seconds for data since the last one."""
        if self._board is None:
            return
        rate, seconds = self._throughput.take(progress.images)
        figures = {
            "loss": progress.curve[-1][1],
            "learning_rate": learning_rate(progress.images, self._training),
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

    def beat(self, progress: Progress) -> None:
        """Report a step in the heartbeat, with the figures that were logged last; the first one begins the attempt."""
        if self._board is None:
            return
        if progress.images == self._first_images + self._training.batch:
            self._unit.attempt.begin(self._first_images, self._unit.trajectory)
        self._beat(progress)

    def skipped(self, end: int, progress: Progress) -> None:
        """Report a step that was skipped; end: images seen after it."""
        if self._board is None:
            return
        images = f"images {end - self._training.batch} to {end - 1}"
        print(f"{images}: their gradient is not finite; step {progress.skipped} that is skipped", flush=True)

    def look(self, look: Look, progress: Progress) -> None:
        """Show what was seen of the network in TensorBoard, and its losses in the log."""
        if self._board is None:
            return
        for name, loss in look.losses.items():
            self._board.add_scalar(name, loss, progress.images)
        if look.pictures is not None:
            self._board.add_images("samples", look.pictures, progress.images, dataformats="NHWC")
        losses = ", ".join(f"{name} {loss:.4f}" for name, loss in look.losses.items())
        print(f"looked at {progress.images} images{': ' if losses else ''}{losses}", flush=True)

    def saved(self, progress: Progress, saved: Saved) -> None:
        """Report a saved state; what TensorBoard holds is then as complete as the state."""
        if self._board is None:
            return
        self._board.flush()
        self._unit.heartbeat.saved(saved.images)
        self._beat(progress)
        beside = saved.seconds - saved.copy_seconds
        print(f"saved at {saved.images} images in {saved.copy_seconds:.2f} + {beside:.2f} s beside", flush=True)

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._board is not None:
            self._board.close()

    def _beat(self, progress: Progress) -> None:
        self._unit.heartbeat.beat(progress.images, self._training.images, **self._with_skipped(progress))

    def _with_skipped(self, progress: Progress) -> dict[str, float]:
        return self._figures | ({"skipped": progress.skipped} if progress.skipped else {})
