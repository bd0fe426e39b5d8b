"""Latents of an autoencoder, shifted and scaled to about zero mean and unit variance (arXiv 2112.10752, app. G).

Images are encoded once. Trainings read means and log-variances from a column and sample new latents at every visit.
"""

from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.spaces import AutoencoderSettings, LatentSpaceSettings
from hpcddm.diffusion.spaces.base import LatentSpace
from hpcddm.diffusion.spaces.pixels import pixels_to_values, values_to_pixels
from hpcddm.encoders.autoencoder.base import Autoencoder
from hpcddm.errors import UserError
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.jobs.devices import current_device
from hpcddm.runs.files import SCALE_FILE, WEIGHTS
from hpcddm.runs.result_types import LatentScale
from hpcddm.runs.run_dir import Locate
from hpcddm.runs.unit_keys import AUTOENCODER, LATENT_SCALE

IMAGES_AT_ONCE = 16
"""Number of images encoded or decoded together; at full size their activations take gigabytes."""


class AutoencodedImagesSettings(LatentSpaceSettings):
    """Autoencoder, its training if the run trains it, and the shift and scale in x = (latents - shift) scale.

    Shift and scale are one number for all channels, or one per channel; by default they are measured per channel.
    """


class AutoencodedImages(LatentSpace[AutoencodedImagesSettings]):
    """Space of the latents of an autoencoder, whose decoder converts x to images."""

    def __init__(self, settings: AutoencodedImagesSettings, data: ImageShape, locate: Locate | None = None):
        super().__init__(settings, data, locate)
        self._images, self._locate = data, locate

    @torch.no_grad()
    def moments(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float32[Tensor, "n m c h w"]:
        """Encode images on the current device, a few at a time."""
        parts = [
            self.autoencoder.encode(pixels_to_values(part.to(current_device())))
            for part in images.split(IMAGES_AT_ONCE)
        ]
        return torch.cat(parts)

    def to_model(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float32[Tensor, "n c h w"]:
        """Encode images and return x of the mean of their latents."""
        return self.from_batch(self.moments(images)[:, 0])

    def from_batch(self, values: Float[Tensor, "n c h w"]) -> Float32[Tensor, "n c h w"]:
        """Shift and scale latents (N, C, H, W)."""
        shift, scale = (part.to(values.device) for part in self._shift_and_scale)
        return (values.float() - shift) * scale

    @torch.no_grad()
    def to_images(self, x: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n image_h image_w image_c"]:
        """Decode x, round to whole pixel values, and clip them to [0, 255]."""
        shift, scale = (part.to(current_device()) for part in self._shift_and_scale)
        parts = (part.to(current_device()).float() / scale + shift for part in x.split(IMAGES_AT_ONCE))
        return np.concatenate([values_to_pixels(self.autoencoder.decode(part)) for part in parts])

    @cached_property
    def autoencoder(self) -> Autoencoder[AutoencoderSettings]:
        """Autoencoder with its weights, from the run if the run trains it; loaded on first use."""
        settings = self.settings.autoencoder
        trained = self._output(AUTOENCODER, WEIGHTS) if settings.is_trained else None
        return variants.create(Autoencoder, settings, self._images, trained)

    @cached_property
    def _shift_and_scale(self) -> tuple[Float32[Tensor, "c 1 1"], Float32[Tensor, "c 1 1"]]:
        path = self._output(LATENT_SCALE, SCALE_FILE)
        try:
            stored = checked_reads.read_required_json(path, LatentScale)
        except Unreadable as error:
            again = f"remove {path.parent}/manifest.json and submit again"
            raise UserError(f"{path}: {error.reason}; {again}") from None
        shift, scale = (torch.tensor(part, dtype=torch.float32).view(-1, 1, 1) for part in (stored.shift, stored.scale))
        return shift, scale

    def _output(self, key: str, name: str) -> Path:
        if self._locate is None:
            raise ValueError(f"the space {self.settings.name} needs the outputs of a run")
        return self._locate(key, name)
