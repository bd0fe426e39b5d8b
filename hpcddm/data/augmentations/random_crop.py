"""Random crop: a square from anywhere in the image, of a random part of its side, resized.

It is cut from the square that `data.transform` makes. Of existing tars that square is read so large that the smallest
crop need not be enlarged, where the picture has as many pixels; images in tars that were written have no more than
`data.image_size`, so their crops are enlarged, and what is drawn is a little softer.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from hpcddm.config.data_variants import AugmentationSettings
from hpcddm.data.augmentations.base import Augmentation
from hpcddm.randomness.keyed import RandomDraws
from hpcddm.randomness.streams import CROP_LEFT, CROP_SIDE, CROP_TOP


class RandomCropSettings(AugmentationSettings):
    """Least share of the image's side that is left; all from there to 1 are equally likely."""

    min_share: Annotated[float, Field(gt=0, le=1)] = 0.8

    def source_side(self, side: int) -> int:
        """Return the source side at which the smallest crop has `side` pixels."""
        return math.ceil(side / self.min_share)


class RandomCrop(Augmentation[RandomCropSettings]):
    """Crop of whole pixels: what is cut off has no influence on the pixels at the edge."""

    def augment(self, images: Tensor, indices: Sequence[int], draws: RandomDraws) -> Tensor:
        whole, share = images.shape[1], self.settings.min_share
        sizes = (whole * (share + (1 - share) * draws.uniform(indices, CROP_SIDE))).round().long().clamp(1)
        top, left = ((whole - sizes + 1).mul(draws.uniform(indices, edge)).long() for edge in (CROP_TOP, CROP_LEFT))
        boxes = torch.stack([left, top, left + sizes, top + sizes], dim=1).tolist()
        cut = [self._resized(image, tuple(box)) for image, box in zip(images.numpy(), boxes, strict=True)]
        return torch.from_numpy(np.stack(cut))

    def _resized(self, pixels: np.ndarray, box: tuple[int, int, int, int]) -> np.ndarray:
        """Cut a square out of an image (H, W, C) and resize it to (side, side, C)."""
        left, top, right, bottom = box
        square = pixels[top:bottom, left:right]
        # Pillow has images of one channel without an axis for it.
        image = Image.fromarray(square[..., 0] if square.shape[2] == 1 else square)
        resized = np.asarray(image.resize((self.side, self.side), Image.Resampling.LANCZOS))
        return resized.reshape(self.side, self.side, -1)
