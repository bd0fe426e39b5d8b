"""Steps of a training: their losses, those whose gradient was not finite, and what the log says of them."""

import math
from dataclasses import asdict
from typing import Any

import torch

from hpcddm.config.training import Training
from hpcddm.data.loader import Loader
from hpcddm.errors import require
from hpcddm.jobs.unit import Unit
from hpcddm.training.engine import Engine
from hpcddm.training.log import TrainingLog
from hpcddm.training.meters import MeanLoss, TrainingProgress, crosses_multiple

MAX_SKIPPED = 100
"""Number of skipped steps in a row after which a training has diverged and ends."""


class StepResults:
    """Steps of one training; the host reads of many at once what became of them: each time it waits for the GPU."""

    def __init__(
        self, training: Training, progress: TrainingProgress, unit: Unit, log: TrainingLog, device: torch.device
    ) -> None:
        self._training, self._progress, self._unit, self._log = training, progress, unit, log
        self._mean_loss = MeanLoss(progress, device)
        self._unread: list[tuple[int, int, bool | torch.Tensor]] = []
        self._skipped_in_a_row = 0

    def add(self, losses: torch.Tensor, applied: bool | torch.Tensor) -> None:
        """Note a step with the losses, (N,), of this rank's images; made: as `Engine.step` returns it."""
        self._mean_loss.add(losses, applied)
        self._unread.append((self._progress.images, len(losses), applied))

    def report(self, engine: Engine, loader: Loader[Any], reads_results: bool) -> None:
        """Report the last step in the heartbeat and, where an interval of the log has passed, all figures; collective.

        settles: True to read now what became of the steps, whether figures are due or not.
        Raises `UserError` where so many steps in a row were skipped that the training has diverged, and for a mean loss
        that is not finite.
        """
        progress = self._progress
        is_logged = crosses_multiple(self._training.log_every_images, progress.images, self._training.batch)
        if is_logged or reads_results:
            self._read_results()
        self._log.beat(progress)
        if is_logged and self._mean_loss.images > 0:
            loss, place = self._mean_loss.take(), f"{self._unit.key}: the loss is"
            require(math.isfinite(loss), f"{place} {loss} at {progress.images} images; lower the learning_rate")
            progress.curve.append((progress.images, loss))
            self._log.write(progress, engine.gradient_norm(), loader.pop_wait_seconds())

    def state(self, engine: Engine) -> dict[str, Any]:
        """Return the progress as a training state keeps it; collective."""
        self._progress.loss_sums, self._progress.loss_images = self._mean_loss.sums(), self._mean_loss.images
        self._progress.scaler = engine.scaler_state()
        return asdict(self._progress)

    def _read_results(self) -> None:
        """Count what was made and what was skipped since the last call."""
        flags = [made for _, _, made in self._unread]
        unread = [flag for flag in flags if isinstance(flag, torch.Tensor)]
        read = iter(torch.stack(unread).tolist() if unread else ())
        for images, count, made in self._unread:
            if next(read) if isinstance(made, torch.Tensor) else made:
                self._mean_loss.images += count
                self._skipped_in_a_row = 0
                continue
            self._progress.skipped += 1
            self._skipped_in_a_row += 1
            self._log.log_skipped(images, self._progress)
            require(
                self._skipped_in_a_row < MAX_SKIPPED,
                f"{self._unit.key}: no gradient was finite in {MAX_SKIPPED} steps up to {images} images;"
                " lower the learning_rate",
            )
        self._unread.clear()
