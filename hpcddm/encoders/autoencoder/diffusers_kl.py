"""Autoencoder of latent diffusion (Rombach et al., arXiv 2112.10752), diffusers' AutoencoderKL."""

from typing import ClassVar

import torch
from jaxtyping import Float32
from torch import Tensor

from hpcddm.encoders.autoencoder.diffusers_network import DiffusersAutoencoder
from hpcddm.encoders.diffusers_settings import DiffusersSettings


class DiffusersKlSettings(DiffusersSettings):
    """Folder of an AutoencoderKL, such as those of Stable Diffusion: 4 latent channels, or 16 since its version 3."""

    kind: ClassVar[str] = "AutoencoderKL"
    levels: ClassVar[str] = "block_out_channels"


class DiffusersKl(DiffusersAutoencoder[DiffusersKlSettings]):
    """Latents as a normal distribution each."""

    @torch.no_grad()
    def encode(self, images: Float32[Tensor, "n c h w"]) -> Float32[Tensor, "n moments z latent_h latent_w"]:
        distribution = self.network.encode(images.to(self.device, self.dtype)).latent_dist
        return torch.stack([distribution.mean, distribution.logvar], dim=1).float()
