"""The router: a small DiT that says which cluster a noisy image belongs to (arXiv 2501.05450, sec. 3.2-3.3)."""

from typing import Any, ClassVar

import torch
from torch import nn

from hpcddm.models.parts import Trunk, linear, modulate
from hpcddm.models.size import linear_size, trunk_size
from hpcddm.schema import Positive, VariantSettings


class Settings(VariantSettings):
    """The size of the network, and whether the router sees the class that the experts see."""

    role: ClassVar[str] = "router"

    width: Positive
    depth: Positive
    heads: Positive
    patch: Positive
    class_conditional: bool = True

    def parameters(self, data: Any, num_outputs: int) -> int:
        """How many parameters the network has."""
        head = linear_size(self.width, 2 * self.width) + linear_size(self.width, num_outputs)
        return trunk_size(self, data) + head

    def check(self, experiment: Any) -> None:
        """Raise ValueError unless patches tile the image and the width splits into heads."""
        if experiment.data.image_size % self.patch:
            raise ValueError(f"patch {self.patch} does not divide image_size {experiment.data.image_size}")
        if self.width % (4 * self.heads):
            raise ValueError(f"width {self.width} is no multiple of 4 heads = {4 * self.heads}")


class RouterDiT(nn.Module):
    """Logits of p(cluster | x, t, class): forward(x, t, classes) -> (N, K) float32.

    x: (N, C, H, W); t: (N,) in [0, 1]; classes: (N,), `num_classes` being the null class.
    """

    def __init__(self, settings: Settings, data: Any, num_clusters: int):
        super().__init__()
        self.class_conditional, self.null_class = settings.class_conditional, data.num_classes
        self.trunk = Trunk(settings, data)
        self.modulation = linear(settings.width, 2 * settings.width, nn.init.zeros_)
        self.head = linear(settings.width, num_clusters, nn.init.zeros_)

    def forward(self, x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        if not self.class_conditional:
            classes = torch.full_like(classes, self.null_class)
        tokens, condition = self.trunk(x, t, classes)
        shift, scale = self.modulation(condition)[:, None].chunk(2, dim=2)
        return self.head(modulate(tokens, shift, scale).mean(dim=1)).float()


def build(settings: Settings, data: Any, num_outputs: int | None = None) -> nn.Module:
    """The network for `num_outputs` clusters, freshly initialised; `data` has channels, image_size, num_classes."""
    return RouterDiT(settings, data, num_outputs)
