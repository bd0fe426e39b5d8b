"""Down-sampled pixels as features, without weights or dependencies, for clustering small centred images."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from hpcddm.schema import Positive, VariantSettings


class Settings(VariantSettings):
    """Side `size` of the down-sampled image: features have size^2 x channels values."""

    role: ClassVar[str] = "image"
    uses_gpu: ClassVar[bool] = False

    size: Positive = 7

    def dimensions(self, data: Any) -> int:
        """Return the number of features per image."""
        return self.size**2 * data.channels

    def check(self, experiment: Any) -> None:
        """Raise ValueError when this would enlarge images."""
        if self.size > experiment.data.image_size:
            raise ValueError(f"pixel size {self.size} exceeds image_size {experiment.data.image_size}")


def build(settings: Settings) -> Callable[[np.ndarray], np.ndarray]:
    """Build a function from uint8 images (N, H, W, C) to float32 features (N, D) in [0, 1]."""

    def encode(images: np.ndarray) -> np.ndarray:
        planes = torch.from_numpy(images).permute(0, 3, 1, 2).float()
        return (F.adaptive_avg_pool2d(planes, settings.size).flatten(1) / 255).numpy()

    return encode
