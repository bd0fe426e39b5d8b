"""Random times, noise and class dropout, the training inputs of denoisers and the router."""

from dataclasses import dataclass

import torch

from hpcddm.data import noise
from hpcddm.data.batch import Batch


@dataclass(frozen=True)
class Randomness:
    """Source of the random numbers of one training."""

    seed: int
    stream: str

    def uniform_times(self, batch: Batch) -> torch.Tensor:
        """Draw uniform times (N,) in [0, 1)."""
        return noise.uniform(self.seed, f"{self.stream}/time", batch.sample_indices).to(batch.x0.device)

    def gaussian(self, batch: Batch) -> torch.Tensor:
        """Draw standard normal noise (N, C, H, W)."""
        shape = tuple(batch.x0.shape[1:])
        return noise.gaussian(self.seed, f"{self.stream}/noise", batch.sample_indices, shape).to(batch.x0.device)

    def classes(self, batch: Batch, dropout: float, null_class: int) -> torch.Tensor:
        """Replace each of the labels (N,) by the null class with probability `dropout` (arXiv 2207.12598, alg. 1)."""
        dropped = noise.uniform(self.seed, f"{self.stream}/dropout", batch.sample_indices).to(batch.x0.device) < dropout
        return torch.where(dropped, null_class, batch.labels)
