"""Tiny autoencoder (TAESD), a small substitute of a large one's latents, diffusers' AutoencoderTiny."""

from typing import ClassVar

import torch
from jaxtyping import Float32
from torch import Tensor

from hpcddm.encoders.autoencoder.diffusers_network import DiffusersAutoencoder
from hpcddm.encoders.diffusers_settings import DiffusersSettings


class DiffusersTinySettings(DiffusersSettings):
    """Folder of an AutoencoderTiny, such as TAESD."""

    moments: ClassVar[int] = 1
    kind: ClassVar[str] = "AutoencoderTiny"
    levels: ClassVar[str] = "encoder_block_out_channels"


class DiffusersTiny(DiffusersAutoencoder[DiffusersTinySettings]):
    """Latents without a variance."""

    @torch.no_grad()
    def encode(self, images: Float32[Tensor, "n c h w"]) -> Float32[Tensor, "n moments z latent_h latent_w"]:
        latents: Tensor = self.network.encode(images.to(self.device, self.dtype)).latents
        return latents[:, None].float()
