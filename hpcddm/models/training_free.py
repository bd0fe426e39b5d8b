"""Routers that are computed from the run's data instead of trained: the prior of the clusters plus a score of x."""

from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.models import PriorRouterSettings
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.reader import Reader
from hpcddm.models.base import ComputedRouter, Condition, Images, Logits, Times

P = TypeVar("P", bound=PriorRouterSettings)
IMAGES_AT_ONCE = 256


class PriorRouter(ComputedRouter[P]):
    """Router with logits log p(k | c) + score(x, t), in the dtype of x.

    With `settings.prior` 'class' the prior is p(k | c) from counts with add-one smoothing, with 'natural' p(k), with
    'equal' a constant. The null class has p(k). If images have no classes, there is one prior for all images.

    Args:
        settings: Settings of the router.
        data: Properties of the data.
        num_clusters: Number of clusters K.
    """

    log_prior: nn.Parameter

    def __init__(self, settings: P, data: NetworkData, num_clusters: int):
        super().__init__()
        self.settings, self.num_clusters, self.num_priors = settings, num_clusters, settings.priors(data)
        self.log_prior = frozen_parameter(self.num_priors, num_clusters)

    def forward(self, x: Images, t: Times, condition: Condition) -> Logits:
        """Compute the logits (N, K)."""
        prior = self.log_prior.to(x.dtype)
        return (prior if self.num_priors == 1 else prior[condition]) + self.score(x, t)

    def score(self, x: Images, t: Times) -> Logits:
        """Estimate log p(x_t | k) of noisy images, up to a constant per image; zero in this class."""
        return x.new_zeros(len(x), self.num_clusters)

    @torch.no_grad()
    def fit(self, reader: Reader, x0_of: Callable[[range], Tensor], advance: Callable[[int], None]) -> None:
        """Compute the prior from the classes and clusters of the reader's samples."""
        counts = torch.zeros(self.num_priors, self.num_clusters, dtype=torch.float64)
        for block in split_into_blocks(range(len(reader))):
            clusters = reader.clusters(block)
            labels = torch.zeros_like(clusters) if self.num_priors == 1 else reader.labels(block)
            counts.index_put_((labels, clusters), torch.ones(len(block), dtype=torch.float64), accumulate=True)
        self.log_prior.copy_(self._log_prior(counts))

    def _log_prior(
        self, counts: Float64[Tensor, "{self.num_priors} {self.num_clusters}"]
    ) -> Float64[Tensor, "{self.num_priors} {self.num_clusters}"]:
        """Return the smoothed log prior of samples counted by class and cluster; changes the counts."""
        counts[-1] = counts.sum(0)
        if self.settings.prior == "natural":
            counts = counts[-1:].expand_as(counts)
        if self.settings.prior == "equal":
            counts = torch.zeros_like(counts)
        smoothed = counts + 1
        return (smoothed / smoothed.sum(1, keepdim=True)).log()


def frozen_parameter(*shape: int) -> nn.Parameter:
    """Create a parameter of zeros without gradient, which `fit` fills."""
    return nn.Parameter(torch.zeros(*shape), requires_grad=False)
