"""The router: a small DiT that classifies noisy images by cluster (arXiv 2501.05450, sec. 3.2-3.3)."""

from typing import Any, ClassVar, Literal

import torch
from torch import nn

from hpcddm.models.dit import Transformer, Trunk
from hpcddm.models.size import TransformerSettings, head_size, trunk_size


class Settings(TransformerSettings):
    """A transformer's settings; `pool` is the classifier's input: the tokens' mean, or a CLS token."""

    role: ClassVar[str] = "router"

    size: Literal["S", "B", "L", "XL"] | None = None
    pool: Literal["mean", "cls"] = "mean"

    def parameters(self, data: Any, num_outputs: int) -> int:
        """Count the network's parameters."""
        cls = self.width if self.pool == "cls" else 0
        return trunk_size(self, data) + cls + head_size(self, num_outputs)


class RouterDiT(Transformer):
    """Logits of p(cluster | x, t, condition): forward(x, t, condition) -> (N, K) float32.

    x: (N, C, H, W); t: (N,) in [0, 1]; condition: (N,) classes, `num_classes` being the null class, or for text models
    token states (N, L, D), too; with condition none it is ignored.
    """

    def __init__(self, settings: Settings, data: Any, num_clusters: int):
        cls = settings.pool == "cls"
        super().__init__(settings, Trunk(settings, data, cls), num_clusters)

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        tokens = self.normalised(x, t, condition)
        return self.head(tokens.mean(dim=1) if self.trunk.cls is None else tokens[:, 0]).float()


def build(settings: Settings, data: Any, num_outputs: int | None = None) -> nn.Module:
    """Build the network for `num_outputs` clusters; `data` as for `dit.Embeddings`."""
    return RouterDiT(settings, data, num_outputs)
