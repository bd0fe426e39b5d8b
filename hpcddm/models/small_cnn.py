"""A small convolutional classifier of generated images, whose features are those of the Frechet distance."""

from typing import Any, ClassVar

import torch
from torch import nn

from hpcddm.models.size import linear_size
from hpcddm.schema import Positive, VariantSettings


class Settings(VariantSettings):
    """Channels of the first stage (doubled in each later one) and the number of penultimate features."""

    role: ClassVar[str] = "classifier"

    width: Positive = 32
    features: Positive = 128

    def parameters(self, data: Any, num_outputs: int) -> int:
        """Count the network's parameters."""
        widths = [data.channels, self.width, 2 * self.width, 4 * self.width]
        stages = sum(
            linear_size(9 * inputs, outputs) + 2 * outputs for inputs, outputs in zip(widths, widths[1:], strict=False)
        )
        pooled = widths[-1] * (data.image_size // 8) ** 2
        return stages + linear_size(pooled, self.features) + linear_size(self.features, num_outputs)

    def check(self, experiment: Any) -> None:
        """Raise ValueError for images that are too small for three halvings."""
        if experiment.data.image_size < 8:
            raise ValueError(f"small_cnn needs images of at least 8 x 8, not {experiment.data.image_size}")


class SmallCNN(nn.Module):
    """forward(images) -> logits (N, classes) float32; `features(images)` -> (N, D) float32.

    images: (N, C, H, W) in [-1, 1]. Group norm and not batch norm: an image's features depend on no other image.
    """

    def __init__(self, settings: Settings, data: Any, num_classes: int):
        super().__init__()
        width = settings.width
        self.stages = nn.Sequential(
            _stage(data.channels, width), _stage(width, 2 * width), _stage(2 * width, 4 * width)
        )
        side = data.image_size // 8
        self.penultimate = nn.Linear(4 * width * side**2, settings.features)
        self.head = nn.Linear(settings.features, num_classes)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Compute the penultimate activations (N, D) float32 of images (N, C, H, W) in [-1, 1]."""
        maps = self.stages(images.to(self.head.weight.dtype))
        return torch.relu(self.penultimate(maps.flatten(1))).float()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).to(self.head.weight.dtype)).float()


def _stage(inputs: int, outputs: int) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1)
    return nn.Sequential(convolution, nn.MaxPool2d(2), nn.GroupNorm(8, outputs), nn.ReLU())


def build(settings: Settings, data: Any, num_outputs: int | None = None) -> nn.Module:
    """Build the network for `num_outputs` classes, freshly initialised; `data` has channels and image_size."""
    return SmallCNN(settings, data, num_outputs)
