"""A small convolutional autoencoder with a KL penalty, trained by the run on its images.

The latents are those of a variational autoencoder (Kingma and Welling, arXiv 1312.6114) whose penalty is so small that
it only keeps them bounded (Rombach et al., arXiv 2112.10752, sec. 3.1). Pixels are folded into channels first, so all
convolutions run at the size of the latents.
"""

from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from pydantic import Field
from torch import Tensor, nn

from hpcddm.config.data_shapes import ImageShape, Shape
from hpcddm.config.schema import Positive
from hpcddm.config.spaces import TrainedAutoencoderSettings
from hpcddm.encoders.autoencoder.base import TrainedAutoencoder
from hpcddm.files import tensors
from hpcddm.jobs.devices import current_device
from hpcddm.runs import manifest

NORM_GROUPS = 8
LOWEST, HIGHEST = -30.0, 20.0
"""Bounds of the log-variance, beyond which its exponential is of no use."""


class SmallKLSettings(TrainedAutoencoderSettings):
    """Factor by which latents are smaller than images, their channels, width and depth, and weight of the penalty.

    `blocks` residual blocks of `width` channels are in the encoder, as many in the decoder.
    """

    factor: Literal[2, 4, 8] = 4
    channels: Positive = 4
    width: Annotated[int, Field(gt=0, multiple_of=NORM_GROUPS)] = 96
    blocks: Positive = 2
    kl_weight: Annotated[float, Field(ge=0)] = 1e-6

    def shape(self, channels: int, image_size: int) -> Shape:
        if image_size % self.factor:
            raise ValueError(f"factor {self.factor} does not divide image_size {image_size}")
        return Shape(self.channels, image_size // self.factor, image_size // self.factor)

    def parameters(self, images: ImageShape) -> int:
        folded, width, latents = images.channels * self.factor**2, self.width, self.channels
        # Each convolution has 9 weights per pair of channels and a bias, each norm a scale and a shift per channel.
        blocks = 2 * self.blocks * (2 * (9 * width**2 + width) + 4 * width)
        ends = (9 * folded * width + width) + 2 * width + (2 * latents * width + 2 * latents)
        back = (9 * latents * width + width) + 2 * width + (9 * width * folded + folded)
        return blocks + ends + back


class ResidualBlock(nn.Module):
    """Two convolutions behind norms, added to their input; at the start it is the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(NORM_GROUPS, width) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        for parameter in self.convolutions[1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        inner = maps
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            inner = convolution(F.silu(norm(inner)))
        return maps + inner


class SmallKLNetwork(nn.Module):
    """Encoder and decoder, and the loss that trains both."""

    def __init__(self, settings: SmallKLSettings, images: ImageShape) -> None:
        super().__init__()
        folded, width = images.channels * settings.factor**2, settings.width
        self.kl_weight = settings.kl_weight
        self.encoder = nn.Sequential(
            nn.PixelUnshuffle(settings.factor),
            nn.Conv2d(folded, width, 3, padding=1),
            *(ResidualBlock(width) for _ in range(settings.blocks)),
            nn.GroupNorm(NORM_GROUPS, width),
            nn.SiLU(),
            nn.Conv2d(width, 2 * settings.channels, 1),
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(settings.channels, width, 3, padding=1),
            *(ResidualBlock(width) for _ in range(settings.blocks)),
            nn.GroupNorm(NORM_GROUPS, width),
            nn.SiLU(),
            nn.Conv2d(width, folded, 3, padding=1),
            nn.PixelShuffle(settings.factor),
        )

    def moments(self, images: Float[Tensor, "n c h w"]) -> Float32[Tensor, "n 2 z latent_h latent_w"]:
        """Compute mean and log-variance of the latents."""
        mean, log_variance = self.encoder(images.to(self._dtype)).float().chunk(2, dim=1)
        return torch.stack([mean, log_variance.clamp(LOWEST, HIGHEST)], dim=1)

    def decode(self, latents: Float[Tensor, "n z latent_h latent_w"]) -> Float32[Tensor, "n c h w"]:
        """Compute images."""
        return self.decoder(latents.to(self._dtype)).float()

    def forward(
        self, images: Float[Tensor, "n c h w"], noise: Float[Tensor, "n z latent_h latent_w"]
    ) -> Float32[Tensor, " n"]:
        """Compute the loss of every image: mean squared error, and the weighted KL divergence per value of the image.

        The divergence is that from a standard normal (arXiv 1312.6114, app. B).
        """
        mean, log_variance = self.moments(images).unbind(1)
        restored = self.decode(mean + (log_variance / 2).exp() * noise)
        error = (restored - images.float()).square().flatten(1).mean(1)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).flatten(1).sum(1)
        return error + self.kl_weight * divergence / images[0].numel()

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


class SmallKL(TrainedAutoencoder[SmallKLSettings]):
    """The network with the run's weights, in fp32."""

    def __init__(self, settings: SmallKLSettings, images: ImageShape, trained: Path | None = None) -> None:
        super().__init__(settings, images, trained)
        self.network: SmallKLNetwork = SmallKLNetwork(settings, images)
        if trained is not None:
            tensors.load(self.network, trained, manifest.recorded_digest(trained.parent, trained.name))
            self.network.eval().requires_grad_(False).to(current_device())

    def encode(self, images: Float32[Tensor, "n c h w"]) -> Float32[Tensor, "n 2 z latent_h latent_w"]:
        return self.network.moments(images)

    def decode(self, latents: Float[Tensor, "n z latent_h latent_w"]) -> Float32[Tensor, "n c h w"]:
        return self.network.decode(latents)
