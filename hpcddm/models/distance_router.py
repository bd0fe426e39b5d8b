"""A router by the distance to the clusters' means, in the space of x: each cluster is one round Gaussian."""

import math
from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.models import PriorRouterSettings
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.reader import Reader
from hpcddm.models.base import Images, Logits, Times
from hpcddm.models.training_free import IMAGES_AT_ONCE, PriorRouter, frozen_parameter


class DistanceRouterSettings(PriorRouterSettings):
    """Temperature that divides the score, and the clusters' prior."""

    temperature: Annotated[float, Field(gt=0)] = 1.0

    def parameters(self, data: NetworkData, num_clusters: int) -> int:
        return (self.priors(data) + math.prod(data.x_shape) + 1) * num_clusters


class DistanceRouter(PriorRouter[DistanceRouterSettings]):
    """Router with logits log p(k | c) + log N(x; (1 - t) m_k, (t^2 + (1 - t)^2 s_k^2) I) / temperature.

    m_k is the mean of cluster k's x0 and s_k^2 their variance around it, averaged over its values: this is the
    exact posterior on the linear path where every cluster is a round Gaussian. Values are not independent of each
    other, so it is overconfident where there is little noise; temperature scaling mends that.
    """

    def __init__(self, settings: DistanceRouterSettings, data: NetworkData, num_clusters: int):
        super().__init__(settings, data, num_clusters)
        self.means = frozen_parameter(num_clusters, math.prod(data.x_shape))
        self.variances = frozen_parameter(num_clusters)

    def score(self, x: Images, t: Times) -> Logits:
        x, means, t = x.flatten(1), self.means.to(x.dtype), t.to(x.dtype)[:, None]
        # |x|^2 may not be left out: it is divided by each cluster's own variance.
        lengths, products = x.square().sum(1, keepdim=True), x @ means.T
        distances = lengths - 2 * (1 - t) * products + (1 - t).square() * means.square().sum(1)
        variances = t.square() + (1 - t).square() * self.variances.to(x.dtype)
        # At t = 0 a cluster of equal images has no variance.
        variances = variances.clamp(min=torch.finfo(x.dtype).eps)
        return -(x.shape[1] * variances.log() + distances.clamp(min=0) / variances) / (2 * self.settings.temperature)

    @torch.no_grad()
    def fit(self, reader: Reader, x0_of: Callable[[range], Tensor], advance: Callable[[int], None]) -> None:
        """Compute counts, means and variances in one pass over the images, in float64."""
        super().fit(reader, x0_of, advance)
        sums = torch.zeros_like(self.means, dtype=torch.float64)
        squares, counts = (torch.zeros_like(self.variances, dtype=torch.float64) for _ in range(2))
        for rows in split_into_blocks(range(len(reader)), IMAGES_AT_ONCE):
            x0 = x0_of(rows).cpu().flatten(1).double()
            clusters = reader.clusters(rows)
            sums.index_add_(0, clusters, x0)
            squares.index_add_(0, clusters, x0.square().sum(1))
            counts.index_add_(0, clusters, torch.ones(len(clusters), dtype=torch.float64))
            advance(rows.stop)
        counts = counts.clamp(min=1)
        means = sums / counts[:, None]
        self.means.copy_(means)
        self.variances.copy_((squares / counts - means.square().sum(1)).clamp(min=0) / means.shape[1])
