"""Base of the sources of images: records of training and held-out images with their classes and captions."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from PIL import Image

from hpcddm.plugins import S, Variant

SPLITS = ("train", "heldout")


@dataclass(frozen=True)
class Record:
    """One image of a source: a key that never changes, the picture, and its class and its caption where it has them."""

    key: str
    image: Image.Image
    label: int | None = None
    caption: str | None = None


class Split(ABC):
    """The records of one split in a fixed order, read one by one.

    labels: class of every record, None where they have none; class_names: names of the classes in the order of their
    numbers, empty for none; has_captions: true where every record has a caption.
    """

    labels: Int64[np.ndarray, " n"] | None
    class_names: list[str]
    has_captions: bool = False

    @abstractmethod
    def __len__(self) -> int:
        """Count the records."""

    @abstractmethod
    def __getitem__(self, number: int) -> Record:
        """Read one record.

        Raises `UserError` naming the file that is missing or wrong.
        """


class Source(Variant[S]):
    """A source of images; the login node opens it, too: to count the images and to see that they can be read."""

    @abstractmethod
    def open_split(self, split: str) -> Split:
        """Open one of `SPLITS`; only what the labels need is read until an image is accessed.

        Raises `UserError` naming the file or the folder that is missing or wrong.
        """

    @abstractmethod
    def content(self) -> str:
        """Hash the images, or what tells them from others, in seconds: it is computed at every submit."""
