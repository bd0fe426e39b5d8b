"""Outcomes of steps: the losses of those that were made, and the steps whose gradient was not finite."""

import torch

from hpcddm.errors import require
from hpcddm.jobs.unit import Unit
from hpcddm.training.log import TrainingLog
from hpcddm.training.meters import MeanLoss, Progress

MOST_SKIPPED = 100
"""Number of skipped steps in a row after which a training has diverged and ends."""


class Outcomes:
    """Outcomes of the steps of one training, which the host reads all at once: each time it waits for the GPU."""

    def __init__(self, progress: Progress, mean_loss: MeanLoss, log: TrainingLog, unit: Unit) -> None:
        self._progress, self._mean_loss, self._log, self._unit = progress, mean_loss, log, unit
        self._unread: list[tuple[int, int, bool | torch.Tensor]] = []
        self._skipped_in_a_row = 0

    def add(self, losses: torch.Tensor, made: bool | torch.Tensor) -> None:
        """Note a step with the losses, (N,), of this rank's images; made: as `Engine.step` returns it."""
        self._mean_loss.add(losses, made)
        self._unread.append((self._progress.images, len(losses), made))

    def settle(self) -> None:
        """Count what was made and what was skipped since the last call.

        Raises `UserError` where so many steps in a row were skipped that the training has diverged.
        """
        flags = [made for _, _, made in self._unread]
        unread = [flag for flag in flags if isinstance(flag, torch.Tensor)]
        read = iter(torch.stack(unread).tolist() if unread else ())
        for images, count, made in self._unread:
            if next(read) if isinstance(made, torch.Tensor) else made:
                self._mean_loss.images += count
                self._skipped_in_a_row = 0
            else:
                self._progress.skipped += 1
                self._skipped_in_a_row += 1
                self._log.skipped(images, self._progress)
                self._refuse_divergence(images)
        self._unread.clear()

    def _refuse_divergence(self, images: int) -> None:
        require(
            self._skipped_in_a_row < MOST_SKIPPED,
            f"{self._unit.key}: no gradient was finite in {MOST_SKIPPED} steps up to {images} images;"
            " lower the learning_rate",
        )
