"""Resizing of both sides: the whole picture is kept, and one that is no square is distorted."""

from PIL import Image

from hpcddm.config.data import TransformSettings
from hpcddm.data.transforms.base import Transform


class Settings(TransformSettings):
    """Settings of the resizing, which has none."""


class Resize(Transform[Settings]):
    """Both sides by their own factor."""

    def fit(self, image: Image.Image, side: int) -> Image.Image:
        return image if image.size == (side, side) else image.resize((side, side), Image.Resampling.LANCZOS)
