"""Record of one image, the common output of all sources of images."""

from dataclasses import dataclass

from PIL import Image


@dataclass(frozen=True)
class Record:
    """One image of a source: a key that never changes, the picture, its class."""

    key: str
    image: Image.Image
    label: int
