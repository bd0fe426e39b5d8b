"""DiT: a diffusion transformer with adaLN, conditioned on time and on class, text or nothing (arXiv 2212.09748)."""

from typing import Any

from torch import nn

from hpcddm.models.size import DenoiserSettings, head_size, trunk_size
from hpcddm.models.transformer import ImageTransformer
from hpcddm.models.trunk import Trunk


class Settings(DenoiserSettings):
    """Width, depth and heads, or the name of a size; patch, modulation, condition."""

    def parameters(self, data: Any, num_outputs: int | None = None) -> int:
        """Count the network's parameters."""
        return trunk_size(self, data) + head_size(self, self.outputs(data))


def build(settings: Settings, data: Any, num_outputs: int | None = None) -> nn.Module:
    """Build the network; `data` has channels, image_size, num_classes, and text for text models."""
    return ImageTransformer(settings, data, Trunk(settings, data))
