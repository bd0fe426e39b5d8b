"""Measurements of a training: progress, mean loss, throughput and memory, and signs that it has diverged."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from hpcddm.config.training import Training
from hpcddm.errors import UserError
from hpcddm.runs.training_states import LoopProgress

PROCESS_STATUS = Path("/proc/self/status")


@dataclass
class TrainingProgress(LoopProgress):
    """Progress of a training, and what it notes of the resources."""

    def note_resources(self, world_size: int, zero_stage: int, micro_batches: int) -> None:
        """Record the resources of this attempt if they differ from the previous ones.

        Args:
            world_size: Number of ranks.
            zero_stage: Stage of ZeRO.
            micro_batches: Number of micro batches per step and rank.
        """
        now = (world_size, zero_stage, micro_batches)
        if not self.resources or tuple(self.resources[-1][1:]) != now:
            self.resources.append((self.images, *now))

    def resource_changes(self) -> dict[str, list[dict[str, int]]]:
        """Return the recorded resources by name if they changed; the training is then exact only up to rounding."""
        names = ("images", "ranks", "zero_stage", "micro_batches")
        listed = [dict(zip(names, values, strict=True)) for values in self.resources]
        return {"resources": listed} if len(listed) > 1 else {}


def crosses_multiple(interval: int, images: int, batch: int) -> bool:
    """Tell if the most recent batch brought the image count to or past a multiple of the interval.

    Args:
        interval: Interval in images.
        images: Number of images seen, including the batch.
        batch: Number of images in the batch.
    """
    return images // interval > (images - batch) // interval


class MeanLoss:
    """Mean loss over all ranks since the last log; reads nothing from the device until `take`.

    Args:
        progress: Progress at the start of this attempt.
        device: Device of the losses.
    """

    def __init__(self, progress: TrainingProgress, device: torch.device) -> None:
        sums, ranks = progress.loss_sums, dist.get_world_size()
        # Where other ranks go on, each takes an equal part.
        before = sums[dist.get_rank()] if len(sums) == ranks else sum(sums) / ranks
        self._sum = torch.tensor(before, dtype=torch.float64, device=device)
        self.images = progress.loss_images * len(sums) // ranks
        """Number of images of this rank since the last log."""

    def add(self, losses: torch.Tensor, applied: bool | torch.Tensor = True) -> None:
        """Add the losses of a step; the caller counts their images in `images` once it knows that the step was applied.

        Args:
            losses: (N,) losses.
            applied: False if the step was skipped; on a GPU a tensor (), so that the host does not wait for it.
        """
        total = losses.detach().sum()
        if isinstance(applied, torch.Tensor):
            self._sum += torch.where(applied, total, 0.0)
        elif applied:
            self._sum += total

    def take(self) -> float:
        """Return the mean loss and reset the meter; collective."""
        mean = (self._sum / self.images).float()
        dist.all_reduce(mean)
        self._sum.zero_()
        self.images = 0
        return mean.item() / dist.get_world_size()

    def sums(self) -> list[float]:
        """Return the sum of losses since the last log for each rank; collective."""
        gathered = [torch.empty_like(self._sum) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, self._sum)
        return [value.item() for value in gathered]


class Throughput:
    """Images per second of wall-clock time, including saving and logging.

    Args:
        images: Number of images seen at the start.
        clock: Function that returns the time in seconds.
    """

    def __init__(self, images: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._images, self._time = images, clock()

    def take(self, images: int) -> tuple[float, float]:
        """Return images per second and seconds since the last call, and restart the measurement.

        Args:
            images: Number of images seen so far.
        """
        now = self._clock()
        seconds = max(now - self._time, 1e-9)
        rate = (images - self._images) / seconds
        self._images, self._time = images, now
        return rate, seconds


def teraflops(images_per_second: float, flops_per_image: int) -> float:
    """Convert images per second to TFLOP/s, given the FLOPs of one image."""
    return images_per_second * flops_per_image / 1e12


def peak_memory_gib(device: torch.device) -> float:
    """Return this process's peak memory in GiB: GPU memory on a GPU, else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / 2**30
    # Not getrusage, whose peak a process inherits from the one that started it.
    lines = PROCESS_STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 2**20


MAX_LOSS_GROWTH = 10
"""Largest loss in the last step, in units of that in the first, or of 1 where that is less, as from given weights."""
MIN_SPREAD = 1e-6
"""Least difference between the outputs for several images, in units of the largest output."""


def diverged_error(key: str, reason: str, training: Training) -> UserError:
    """Return the error about a unit whose training has diverged."""
    return UserError(f"{key}: the training has diverged: {reason}; lower its learning_rate, {training.learning_rate:g}")


def varies(outputs: np.ndarray) -> bool:
    """Tell if a network answers to its input: whether outputs (..., N, K) for N > 1 images differ among them."""
    finite = np.nan_to_num(outputs.astype(np.float64), posinf=0, neginf=0)
    return bool(outputs.shape[-2] < 2 or np.ptp(finite, axis=-2).max() > MIN_SPREAD * np.abs(finite).max())
