"""DiT: a diffusion transformer with adaLN-zero, conditioned on time and class (arXiv 2212.09748)."""

from typing import Any, ClassVar

import torch
from torch import nn

from hpcddm.models.parts import Trunk, linear, modulate, unpatchify
from hpcddm.models.size import linear_size, trunk_size
from hpcddm.schema import Positive, VariantSettings


class Settings(VariantSettings):
    """The size of the network; `patch` is the side of the square that becomes one token."""

    role: ClassVar[str] = "denoiser"

    width: Positive
    depth: Positive
    heads: Positive
    patch: Positive

    def parameters(self, data: Any, num_outputs: int | None = None) -> int:
        """How many parameters the network has."""
        head = linear_size(self.width, 2 * self.width) + linear_size(self.width, data.channels * self.patch**2)
        return trunk_size(self, data) + head

    def check(self, experiment: Any) -> None:
        """Raise ValueError unless patches tile the image and the width splits into heads."""
        if experiment.data.image_size % self.patch:
            raise ValueError(f"patch {self.patch} does not divide image_size {experiment.data.image_size}")
        if self.width % (4 * self.heads):
            raise ValueError(f"width {self.width} is no multiple of 4 heads = {4 * self.heads}")


class DiT(nn.Module):
    """What the objective predicts, from noisy images: forward(x, t, classes) -> (N, C, H, W) float32.

    x: (N, C, H, W); t: (N,) in [0, 1]; classes: (N,), `num_classes` being the null class.
    """

    def __init__(self, settings: Settings, data: Any):
        super().__init__()
        self.patch, self.channels, self.image_size = settings.patch, data.channels, data.image_size
        self.trunk = Trunk(settings, data)
        self.modulation = linear(settings.width, 2 * settings.width, nn.init.zeros_)
        self.head = linear(settings.width, data.channels * settings.patch**2, nn.init.zeros_)

    def forward(self, x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        tokens, condition = self.trunk(x, t, classes)
        shift, scale = self.modulation(condition)[:, None].chunk(2, dim=2)
        patches = self.head(modulate(tokens, shift, scale))
        return unpatchify(patches, self.patch, self.channels, self.image_size).float()


def build(settings: Settings, data: Any, num_outputs: int | None = None) -> nn.Module:
    """The network, freshly initialised; `data` has channels, image_size, num_classes."""
    return DiT(settings, data)
