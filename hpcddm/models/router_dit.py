"""The router: a small DiT that says which cluster a noisy image belongs to (arXiv 2501.05450, sec. 3.2-3.3)."""

from typing import Any, ClassVar, Literal

import torch
from torch import nn

from hpcddm.models.size import TransformerSettings, head_size, trunk_size
from hpcddm.models.transformer import Transformer
from hpcddm.models.trunk import Trunk


class Settings(TransformerSettings):
    """A transformer's settings; `pool` is what the classifier sees: the tokens' mean, or one put before them."""

    role: ClassVar[str] = "router"

    pool: Literal["mean", "cls"] = "mean"

    def parameters(self, data: Any, num_outputs: int) -> int:
        """How many parameters the network has."""
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
    """The network for `num_outputs` clusters; `data` has channels, image_size, num_classes, text for text models."""
    return RouterDiT(settings, data, num_outputs)
