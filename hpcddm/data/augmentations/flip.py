"""Horizontal flip: every image is mirrored with probability 1/2; wrong for texts, and where left is not right."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hpcddm.config.data import AugmentationSettings
from hpcddm.data.augmentations.base import Augmentation
from hpcddm.data.draws import Draws


class Settings(AugmentationSettings):
    """Settings of the flip, which has none."""


class Flip(Augmentation[Settings]):
    """Flip of left and right."""

    def augmented(self, images: Tensor, indices: Sequence[int], draws: Draws) -> Tensor:
        return torch.where(draws.mirrored(indices).view(-1, 1, 1, 1), images.flip(2), images)
