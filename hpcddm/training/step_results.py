"""Steps of a training: their losses, those whose gradient was not finite, and what the log says of them."""

import math
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist

from hpcddm.config.training import Training
from hpcddm.data.loader import Loader
from hpcddm.errors import UserError
from hpcddm.jobs.unit import Unit
from hpcddm.training.engine import Engine
from hpcddm.training.log import TrainingLog
from hpcddm.training.meters import MAX_LOSS_GROWTH, MeanLoss, TrainingProgress, crosses_multiple, diverged_error

MAX_SKIPPED = 100
"""Number of skipped steps in a row after which a training has diverged and ends."""
MAX_SKIPPED_AT_END = 1
"""Largest number of skipped steps with which a training may end: a single batch can be bad."""
FP16_SEARCH = 16
"""Number of steps that fp16 skips at most while it searches the loss scale, from 2^16 down to 1."""


def has_skipped_most(steps: int, skipped: int, is_fp16: bool) -> bool:
    """Return True if a training has skipped all its steps, or most of those after fp16's search of the loss scale.

    Examples:
        >>> has_skipped_most(20, 10, is_fp16=False), has_skipped_most(20, 11, is_fp16=False)
        (False, True)
        >>> has_skipped_most(20, 16, is_fp16=True), has_skipped_most(20, 19, is_fp16=True)
        (False, True)
    """
    searching = min(skipped, FP16_SEARCH) if is_fp16 else 0
    return skipped == steps or 2 * (skipped - searching) > steps - searching


class StepResults:
    """Steps of one training; the host reads of many at once what became of them: each time it waits for the GPU."""

    def __init__(
        self, training: Training, progress: TrainingProgress, unit: Unit, log: TrainingLog, device: torch.device
    ) -> None:
        self._training, self._progress, self._unit, self._log = training, progress, unit, log
        self._mean_loss, self._device = MeanLoss(progress, device), device
        self._last_loss = torch.tensor(math.nan if progress.last_loss is None else progress.last_loss, device=device)
        self._unread: list[tuple[int, int, bool | torch.Tensor]] = []

    def add(self, losses: torch.Tensor, applied: bool | torch.Tensor) -> None:
        """Note a step with the losses, (N,), of this rank's images; made: as `Engine.step` returns it."""
        self._mean_loss.add(losses, applied)
        # Some weights of losses have no bound, and a mean would follow its largest one.
        self._last_loss = losses.detach().median()
        if self._progress.first_loss is None and math.isfinite(first := self._last_loss.item()):
            self._progress.first_loss = first
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
            progress.curve.append((progress.images, self._finite_loss()))
            self._log.write(progress, engine.gradient_norm(), loader.pop_wait_seconds())

    def state(self, engine: Engine) -> dict[str, Any]:
        """Return the progress as a training state keeps it; collective."""
        self._progress.loss_sums, self._progress.loss_images = self._mean_loss.sums(), self._mean_loss.images
        self._progress.scaler, last = engine.scaler_state(), self._last_loss.item()
        self._progress.last_loss = last if math.isfinite(last) else None
        return asdict(self._progress)

    def require_converged(self) -> None:
        """Raise `UserError` if the last steps or most of them were skipped, or the loss has grown out of all bounds.

        Collective; after the last step.
        """
        progress = self._progress
        steps, skipped = progress.images // self._training.batch, progress.skipped
        if progress.skipped_in_a_row > MAX_SKIPPED_AT_END:
            raise self._diverged(f"no gradient was finite in its last {progress.skipped_in_a_row} steps")
        if has_skipped_most(steps, skipped, self._training.precision == "fp16"):
            raise self._diverged(f"no gradient was finite in {skipped} of its {steps} steps")
        if self._mean_loss.images > 0:
            self._finite_loss()
        ends = torch.stack([torch.full_like(self._last_loss, progress.first_loss or math.nan), self._last_loss])
        dist.all_reduce(ends)
        first, last = (ends / dist.get_world_size()).tolist()
        if last > MAX_LOSS_GROWTH * max(first, 1):
            raise self._diverged(f"the median of its losses in a step has grown from {first:.3g} to {last:.3g}")

    def _finite_loss(self) -> float:
        """Return the mean loss since the last log; collective."""
        loss = self._mean_loss.take()
        if not math.isfinite(loss):
            raise self._diverged(f"its loss is {loss} at {self._progress.images} images")
        return loss

    def _diverged(self, reason: str) -> UserError:
        return diverged_error(self._unit.key, reason, self._training)

    def _read_results(self) -> None:
        """Count what was made and what was skipped since the last call."""
        flags = [made for _, _, made in self._unread]
        unread = [flag for flag in flags if isinstance(flag, torch.Tensor)]
        read = iter(torch.stack(unread).tolist() if unread else ())
        for images, count, made in self._unread:
            if next(read) if isinstance(made, torch.Tensor) else made:
                self._mean_loss.images += count
                self._progress.skipped_in_a_row = 0
                continue
            self._progress.skipped += 1
            self._progress.skipped_in_a_row += 1
            self._log.log_skipped(images, self._progress)
            if self._progress.skipped_in_a_row >= MAX_SKIPPED:
                raise self._diverged(f"no gradient was finite in {MAX_SKIPPED} steps up to {images} images")
        self._unread.clear()
