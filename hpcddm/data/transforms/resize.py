"""Resizing of both sides: the whole picture is kept, and is distorted unless it is square."""

from PIL import Image

from hpcddm.config.data_variants import TransformSettings
from hpcddm.data.transforms.base import Transform


class ResizeSettings(TransformSettings):
    """Settings of the resizing: only its name."""


class Resize(Transform[ResizeSettings]):
    """Both sides by their own factor."""

    def fit(self, image: Image.Image, side: int) -> Image.Image:
        return image if image.size == (side, side) else image.resize((side, side), Image.Resampling.LANCZOS)
