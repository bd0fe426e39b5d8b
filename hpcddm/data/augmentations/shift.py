"""Shift: every image is moved by a few pixels down or up, right or left; the border repeats."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from hpcddm.config.data_variants import AugmentationSettings
from hpcddm.data.augmentations.base import Augmentation
from hpcddm.randomness.keyed import RandomDraws
from hpcddm.randomness.streams import SHIFT_DOWN, SHIFT_RIGHT


class ShiftSettings(AugmentationSettings):
    """Most pixels by which an image is shifted along either axis."""

    max_pixels: Annotated[int, Field(ge=0)]


class Shift(Augmentation[ShiftSettings]):
    """Shift by whole pixels, all from -most to most equally likely."""

    def augment(self, images: Tensor, indices: Sequence[int], draws: RandomDraws) -> Tensor:
        count, height, width, _ = images.shape
        down, right = (draws.shifts(indices, axis, self.settings.max_pixels) for axis in (SHIFT_DOWN, SHIFT_RIGHT))
        rows = (down[:, None] + torch.arange(height)).clamp(0, height - 1)
        columns = (right[:, None] + torch.arange(width)).clamp(0, width - 1)
        return images[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
