"""Routers that are computed from the run's data instead of trained: the prior of the clusters, and a score of x."""

from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from hpcddm.config.models import PriorRouterSettings
from hpcddm.config.shapes import NetworkData
from hpcddm.data.catalog import blocks_of
from hpcddm.data.reader import Reader
from hpcddm.models.base import ComputedRouter, Condition, Images, Logits, Times

P = TypeVar("P", bound=PriorRouterSettings)
IMAGES_AT_ONCE = 256


class PriorRouter(ComputedRouter[P]):
    """Router with logits log p(k | c) + score(x, t), in the dtype of x.

    settings.prior: 'class' for p(k | c) from counts with add-one smoothing, 'natural' for p(k), 'equal' for neither;
    the null class has p(k). Where images have no classes to go by, there is one prior for all.
    """

    log_prior: nn.Parameter

    def __init__(self, settings: P, data: NetworkData, num_clusters: int):
        super().__init__()
        self.settings, self.num_clusters, self.num_priors = settings, num_clusters, settings.priors(data)
        self.log_prior = frozen_parameter(self.num_priors, num_clusters)

    def forward(self, x: Images, t: Times, condition: Condition) -> Logits:
        prior = self.log_prior.to(x.dtype)
        return (prior if self.num_priors == 1 else prior[condition]) + self.score(x, t)

    def score(self, x: Images, t: Times) -> Logits:
        """Estimate log p(x_t | k) of noisy images up to a constant per image; here zero."""
        return x.new_zeros(len(x), self.num_clusters)

    @torch.no_grad()
    def fit(self, reader: Reader, x0_of: Callable[[range], Tensor], advance: Callable[[int], None]) -> None:
        counts = torch.zeros(self.num_priors, self.num_clusters, dtype=torch.float64)
        for block in blocks_of(range(len(reader))):
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
    """Make a parameter without gradient, zero until `fit`."""
    return nn.Parameter(torch.zeros(*shape), requires_grad=False)


def blocks(reader: Reader) -> list[range]:
    """Split the rows of a reader into ranges of at most `IMAGES_AT_ONCE`."""
    return [range(start, min(start + IMAGES_AT_ONCE, len(reader))) for start in range(0, len(reader), IMAGES_AT_ONCE)]
