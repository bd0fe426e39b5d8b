"""Routers that are computed from the run's data instead of trained: the prior of the clusters, and a score of x."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hpcddm.data.reader import Reader

IMAGES_AT_ONCE = 256


class TrainingFree(nn.Module):
    """Router with logits log p(k | c) + score(x, t): forward(x, t, classes) -> logits (N, K), in the dtype of x.

    settings.prior: 'class' for p(k | c) from counts with add-one smoothing, 'natural' for p(k), 'equal' for neither;
    the null class has p(k). Nothing here has a gradient; `fit` computes everything.
    """

    def __init__(self, settings: Any, data: Any, num_clusters: int):
        super().__init__()
        self.prior, self.num_clusters, self.num_classes = settings.prior, num_clusters, data.num_classes
        self.log_prior = frozen_parameter(data.num_classes + 1, num_clusters)

    def forward(self, x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return self.log_prior.to(x.dtype)[classes] + self.score(x, t)

    def score(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Estimate log p(x_t | k) of noisy images x (N, C, H, W) up to a constant per image: (N, K); here zero."""
        return x.new_zeros(len(x), self.num_clusters)

    @torch.no_grad()
    def fit(self, reader: Reader, advance: Callable[[int], None]) -> None:
        """Compute everything from the images of a reader; `advance` is called with the number of images read."""
        rows = range(len(reader))
        self.log_prior.copy_(self._log_prior(reader.labels(rows), reader.clusters(rows)))

    def _log_prior(self, labels: torch.Tensor, clusters: torch.Tensor) -> torch.Tensor:
        counts = torch.zeros(self.num_classes + 1, self.num_clusters, dtype=torch.float64)
        ones = torch.ones(len(labels), dtype=torch.float64)
        counts.index_put_((labels, clusters), ones, accumulate=True)
        counts[-1] = counts.sum(0)
        if self.prior == "natural":
            counts = counts[-1:].expand_as(counts)
        if self.prior == "equal":
            counts = torch.zeros_like(counts)
        smoothed = counts + 1
        return (smoothed / smoothed.sum(1, keepdim=True)).log()


def frozen_parameter(*shape: int) -> nn.Parameter:
    """Make a parameter without gradient, zero until `fit`."""
    return nn.Parameter(torch.zeros(*shape), requires_grad=False)


def blocks(reader: Reader) -> list[range]:
    """Split the rows of a reader into ranges of at most `IMAGES_AT_ONCE`."""
    return [range(start, min(start + IMAGES_AT_ONCE, len(reader))) for start in range(0, len(reader), IMAGES_AT_ONCE)]
