"""Record: one image of a source, before it is a sample in a tar."""

from dataclasses import dataclass

from PIL import Image

from hpcddm.data.texts import cleaned


@dataclass(frozen=True)
class Record:
    """One image of a source: a key that never changes, the picture, and its class and its caption where it has them.

    Whatever the source, the caption is `cleaned`.
    """

    key: str
    image: Image.Image
    label: int | None = None
    caption: str | None = None

    def __post_init__(self) -> None:
        if self.caption is not None:
            object.__setattr__(self, "caption", cleaned(self.caption))
