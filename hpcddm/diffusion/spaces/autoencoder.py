"""Latents of an autoencoder, shifted and scaled to about zero mean and unit variance (arXiv 2112.10752, app. G).

Images are encoded once: trainings read means and log-variances from a column, and draw the latents anew at every visit.
"""

from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.autoencoders import AutoencoderSettings
from hpcddm.config.shapes import ImageShape
from hpcddm.config.spaces import LatentSpaceSettings
from hpcddm.diffusion.spaces.base import LatentSpace
from hpcddm.diffusion.spaces.pixels import from_unit, to_unit
from hpcddm.encoders.autoencoder.base import Autoencoder
from hpcddm.errors import UserError
from hpcddm.files import reading
from hpcddm.files.reading import Unreadable
from hpcddm.jobs.devices import current_device
from hpcddm.runs.files import SCALE_FILE, WEIGHTS
from hpcddm.runs.layout import Locate
from hpcddm.runs.results import Scale
from hpcddm.runs.unit_keys import AUTOENCODER, LATENT_SCALE

IMAGES_AT_ONCE = 16
"""Images that are encoded, or decoded, together: at full size their activations take gigabytes."""


class Settings(LatentSpaceSettings):
    """Autoencoder, its training where the run trains it, and the shift and scale of x = (latents - shift) scale.

    Shift and scale are numbers for all channels, or one for each; by default they are measured, channel by channel.
    """


class AutoencodedImages(LatentSpace[Settings]):
    """Latents; the decoder of the autoencoder is the way back."""

    def __init__(self, settings: Settings, data: ImageShape, locate: Locate | None = None):
        super().__init__(settings, data, locate)
        self._images, self._locate = data, locate

    @torch.no_grad()
    def moments(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float32[Tensor, "n m c h w"]:
        parts = [self.autoencoder.encode(to_unit(part.to(current_device()))) for part in images.split(IMAGES_AT_ONCE)]
        return torch.cat(parts)

    def to_model(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float32[Tensor, "n c h w"]:
        """Encode images: x of the mean of their latents."""
        return self.of_batch(self.moments(images)[:, 0])

    def of_batch(self, values: Float[Tensor, "n c h w"]) -> Float32[Tensor, "n c h w"]:
        """Shift and scale latents."""
        shift, scale = (part.to(values.device) for part in self._shift_and_scale)
        return (values.float() - shift) * scale

    @torch.no_grad()
    def to_images(self, x: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n image_h image_w image_c"]:
        """Decode x and round to whole pixel values; those beyond black and white become these."""
        shift, scale = (part.to(current_device()) for part in self._shift_and_scale)
        parts = (part.to(current_device()).float() / scale + shift for part in x.split(IMAGES_AT_ONCE))
        return np.concatenate([from_unit(self.autoencoder.decode(part)) for part in parts])

    @cached_property
    def autoencoder(self) -> Autoencoder[AutoencoderSettings]:
        """Autoencoder with its weights, those of the run where the run trains it; loaded on first use."""
        own = self.settings.autoencoder
        trained = self._output(AUTOENCODER, WEIGHTS) if own.is_trained else None
        return variants.create(Autoencoder, own, self._images, trained)

    @cached_property
    def _shift_and_scale(self) -> tuple[Float32[Tensor, "c 1 1"], Float32[Tensor, "c 1 1"]]:
        path = self._output(LATENT_SCALE, SCALE_FILE)
        try:
            stored = reading.need_json(path, Scale)
        except Unreadable as error:
            again = f"remove {path.parent}/manifest.json and submit again"
            raise UserError(f"{path}: {error.reason}; {again}") from None
        shift, scale = (torch.tensor(part, dtype=torch.float32).view(-1, 1, 1) for part in (stored.shift, stored.scale))
        return shift, scale

    def _output(self, key: str, name: str) -> Path:
        if self._locate is None:
            raise ValueError(f"the space {self.settings.name} needs the outputs of a run")
        return self._locate(key, name)
