"""Latents of images as a column of means and log-variances; trainings sample new latents from them at every visit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float16, Float32, Float64, Shaped
from torch import Tensor

from hpcddm.data.batch import BatchInputs
from hpcddm.data.columns import Column, Numbers
from hpcddm.errors import require
from hpcddm.randomness.keyed import RandomDraws

MOMENTS, MIRRORED = "moments", "mirrored"
"""Columns of the moments (N, M, C, h, w) of images, and of the images mirrored."""


class LatentInputs(BatchInputs):
    """Latents drawn from the moments of samples; mirrored: those of the mirrored images, which half of the visits see.

    The moments are mean and log-variance of an image, or its latents alone, for which nothing is drawn.
    """

    def __init__(self, moments: Column, mirrored: Column | None = None) -> None:
        self._moments, self._mirrored = moments, mirrored

    def read(self, sample_indices: Sequence[int], numbers: Numbers, draws: RandomDraws) -> Float32[Tensor, "n c h w"]:
        rows = self._moments.gather(numbers)
        if self._mirrored is not None:
            flipped = draws.mirror_mask(sample_indices).numpy()
            rows[flipped] = self._mirrored.gather(np.asarray(numbers)[flipped])
        return sample_latents(torch.from_numpy(rows), sample_indices, draws)


def sample_latents(
    moments: Shaped[Tensor, "n m c h w"], sample_indices: Sequence[int], draws: RandomDraws
) -> Float32[Tensor, "n c h w"]:
    """Draw latents mean + exp(log-variance / 2) noise (Kingma and Welling, arXiv 1312.6114, sec. 2.4)."""
    mean = moments[:, 0].float()
    if moments.shape[1] == 1:
        return mean
    noise = draws.latent_noise(sample_indices, tuple(mean.shape[1:]))
    return torch.addcmul(mean, moments[:, 1].float().div(2).exp(), noise)


@dataclass
class LatentStatistics:
    """Sums over the values of latents, channel by channel, which add up over ranges.

    sums, squares: of the latents as they would be drawn, (C,); count: of the values of a channel.
    """

    sums: Float64[np.ndarray, " c"]
    squares: Float64[np.ndarray, " c"]
    count: int

    @classmethod
    def empty(cls, channels: int) -> "LatentStatistics":
        """Return the statistics of no latents."""
        return cls(np.zeros(channels), np.zeros(channels), 0)

    @classmethod
    def merged(cls, parts: Sequence[dict[str, Any]], channels: int) -> "LatentStatistics":
        """Add up what `values` returned for several ranges, in their order."""
        merged = cls.empty(channels)
        for part in parts:
            require(len(part["sums"]) == channels, f"latents have {len(part['sums'])} channels instead of {channels}")
            merged.sums += np.asarray(part["sums"])
            merged.squares += np.asarray(part["squares"])
            merged.count += part["count"]
        return merged

    def add(self, moments: Float16[np.ndarray, "n m c h w"]) -> None:
        """Add the latents of some images: of a drawn one the mean square is that of its mean plus its variance."""
        mean = moments[:, 0].astype(np.float64)
        squares = np.square(mean) + (np.exp(moments[:, 1].astype(np.float64)) if moments.shape[1] > 1 else 0)
        self.sums += mean.sum(axis=(0, 2, 3))
        self.squares += squares.sum(axis=(0, 2, 3))
        self.count += mean[:, 0].size

    def values(self) -> dict[str, Any]:
        """Return the sums as JSON has them."""
        return {"sums": self.sums.tolist(), "squares": self.squares.tolist(), "count": self.count}

    @property
    def mean(self) -> Float64[np.ndarray, " c"]:
        """Mean of every channel."""
        return self.sums / max(self.count, 1)

    @property
    def deviation(self) -> Float64[np.ndarray, " c"]:
        """Standard deviation of every channel."""
        return np.sqrt(np.maximum(self.squares / max(self.count, 1) - np.square(self.mean), 0))
