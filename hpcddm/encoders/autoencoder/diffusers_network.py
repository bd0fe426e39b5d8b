"""Base of the autoencoders that diffusers runs."""

from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from hpcddm.config.data_shapes import ImageShape
from hpcddm.encoders.autoencoder.base import Autoencoder
from hpcddm.encoders.diffusers_settings import DiffusersSettings
from hpcddm.encoders.optional_packages import from_pretrained, import_package, load_verified
from hpcddm.jobs.devices import DTYPES, current_device

D = TypeVar("D", bound=DiffusersSettings, covariant=True)


class DiffusersAutoencoder(Autoencoder[D]):
    """Network of the class that the settings name; latents are as it makes them, not scaled to unit variance."""

    def __init__(self, settings: D, images: ImageShape, trained: Path | None = None) -> None:
        super().__init__(settings, images, trained)
        self.device, self.dtype = current_device(), DTYPES[settings.precision]
        kind = getattr(import_package("diffusers", settings), settings.kind)
        self.network = load_verified(settings, lambda folder: from_pretrained(kind, folder), self.device)

    @torch.no_grad()
    def decode(self, latents: Float[Tensor, "n z latent_h latent_w"]) -> Float32[Tensor, "n c h w"]:
        images: Tensor = self.network.decode(latents.to(self.device, self.dtype)).sample
        return images.float()
