"""Record: one image of a source, before it is a sample in a tar."""

from dataclasses import dataclass

from PIL import Image


@dataclass(frozen=True)
class Record:
    """One image of a source: a key that never changes, the picture, and its class and its caption where it has them."""

    key: str
    image: Image.Image
    label: int | None = None
    caption: str | None = None
