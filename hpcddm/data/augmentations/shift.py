"""Shift: every image is moved by a few pixels down or up, right or left; the border repeats."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from hpcddm.config.data import AugmentationSettings
from hpcddm.data.augmentations.base import Augmentation
from hpcddm.data.draws import Draws


class Settings(AugmentationSettings):
    """Most pixels by which an image is shifted along either axis."""

    most: Annotated[int, Field(ge=0)]


class Shift(Augmentation[Settings]):
    """Shift by whole pixels, all from -most to most equally likely."""

    def augmented(self, images: Tensor, indices: Sequence[int], draws: Draws) -> Tensor:
        count, height, width, _ = images.shape
        down, right = (draws.shifts(indices, axis, self.settings.most) for axis in ("down", "right"))
        rows = (down[:, None] + torch.arange(height)).clamp(0, height - 1)
        columns = (right[:, None] + torch.arange(width)).clamp(0, width - 1)
        return images[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
