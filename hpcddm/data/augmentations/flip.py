"""Horizontal flip with probability 1/2; wrong for images with text, or where left and right differ in meaning."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hpcddm.config.data_variants import AugmentationSettings
from hpcddm.data.augmentations.base import Augmentation
from hpcddm.randomness.keyed import RandomDraws


class FlipSettings(AugmentationSettings):
    """Settings of the flip: only its name."""


class Flip(Augmentation[FlipSettings]):
    """Flip of left and right."""

    def augment(self, images: Tensor, indices: Sequence[int], draws: RandomDraws) -> Tensor:
        return torch.where(draws.mirror_mask(indices).view(-1, 1, 1, 1), images.flip(2), images)
