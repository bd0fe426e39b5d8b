"""Record: one image of a source, before it becomes a sample in a tar."""

from dataclasses import dataclass

from PIL import Image

from hpcddm.data.image_decoding import ImageError
from hpcddm.files.text_files import EMPTY_CAPTION, is_blank, normalise


@dataclass(frozen=True)
class Record:
    """One image of a source with its class and caption; raises `ImageError` for a blank caption.

    Attributes:
        key: Permanent name of the image.
        image: The picture.
        label: Class number; None without class.
        caption: Caption, normalised by `text_files.normalise`; None without caption.
        file: Place of the picture's file for `Catalog.source_file`; None for a picture that is not a file.
        content: Bytes of that file; None for a picture that is not a file.
    """

    key: str
    image: Image.Image
    label: int | None = None
    caption: str | None = None
    file: str | None = None
    content: bytes | None = None

    def __post_init__(self) -> None:
        if self.caption is not None:
            object.__setattr__(self, "caption", normalise(self.caption))
            if is_blank(self.caption):
                raise ImageError(f"{self.key}: {EMPTY_CAPTION}")
