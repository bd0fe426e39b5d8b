"""A small convolutional classifier of generated images, whose features are those of the Frechet distance."""

from typing import Any

import torch
from jaxtyping import Float32
from torch import Tensor, nn

from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.models import ClassifierModelSettings
from hpcddm.config.schema import Positive
from hpcddm.models.base import Classifier, Images
from hpcddm.models.parameter_counts import count_linear


class SmallCNNSettings(ClassifierModelSettings):
    """Channels of the first stage (doubled in each later one) and the number of penultimate features."""

    width: Positive = 32
    features: Positive = 128

    def parameters(self, data: NetworkData, num_classes: int) -> int:
        widths = [data.channels, self.width, 2 * self.width, 4 * self.width]
        stages = sum(
            count_linear(9 * inputs, outputs) + 2 * outputs for inputs, outputs in zip(widths, widths[1:], strict=False)
        )
        pooled = widths[-1] * (data.image_size // 8) ** 2
        return stages + count_linear(pooled, self.features) + count_linear(self.features, num_classes)

    def check(self, experiment: Any) -> None:
        """Raise ValueError for images that are too small for three halvings."""
        if experiment.data.image_size < 8:
            raise ValueError(f"small_cnn needs images of at least 8 x 8, not {experiment.data.image_size}")


class SmallCNN(Classifier[SmallCNNSettings]):
    """Three convolutions, each with max pooling, and two linear layers.

    Group norm and not batch norm: an image's features depend on no other image.
    """

    def __init__(self, settings: SmallCNNSettings, data: NetworkData, num_classes: int):
        super().__init__()
        self.settings, width = settings, settings.width
        self.stages = nn.Sequential(
            _stage(data.channels, width), _stage(width, 2 * width), _stage(2 * width, 4 * width)
        )
        side = data.image_size // 8
        self.penultimate = nn.Linear(4 * width * side**2, settings.features)
        self.head = nn.Linear(settings.features, num_classes)

    def features(self, images: Images) -> Float32[Tensor, "n d"]:
        maps = self.stages(images.to(self.head.weight.dtype))
        return torch.relu(self.penultimate(maps.flatten(1))).float()

    def forward(self, images: Images) -> Float32[Tensor, "n classes"]:
        return self.head(self.features(images).to(self.head.weight.dtype)).float()


def _stage(inputs: int, outputs: int) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1)
    return nn.Sequential(convolution, nn.MaxPool2d(2), nn.GroupNorm(8, outputs), nn.ReLU())
