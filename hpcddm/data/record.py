"""What every source of images yields."""

from dataclasses import dataclass

from PIL import Image


@dataclass(frozen=True)
class Record:
    """One image as the source has it: a key that stays the same for ever, the picture, its class."""

    key: str
    image: Image.Image
    label: int
