"""Bases of the sources of images: records that are written as tars, or tars that are adopted where they lie."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from hpcddm.config.sources import SourceSettings
from hpcddm.config.variants import Variant
from hpcddm.data.adopted import SourceTar
from hpcddm.data.record import Record
from hpcddm.runs.passed_over import Item

S = TypeVar("S", bound=SourceSettings)
SPLITS = ("train", "heldout")
KNOWN = frozenset({"key", "label", "caption", "width", "height"})
"""Names of the values of any sample that a filter may ask for; a sample may lack some of them."""


class Split(ABC):
    """The records of one split in a fixed order, read one by one.

    labels: class of every record, None where they have none; class_names: names of the classes in the order of their
    numbers, empty for none; has_captions: true where every record has a caption; is_exact: false where number and
    classes are known to the catalog only, and the length is an estimate; known: names of what a filter may ask for;
    passed_over: what lies where the records do and is none, each thing in one split only; tar_count: number of tars
    that hold them.
    """

    labels: Int64[np.ndarray, " n"] | None
    class_names: list[str]
    has_captions: bool = False
    is_exact: bool = True
    known: frozenset[str] = KNOWN
    passed_over: Sequence[Item] = ()
    tar_count: int = 1

    @property
    def has_labels(self) -> bool:
        """Tell if the records have classes."""
        return self.labels is not None

    @abstractmethod
    def __len__(self) -> int:
        """Count the records."""

    def key(self, number: int) -> str:
        """Return the key of a record; sources that know it without the picture override this."""
        return self[number].key

    def keys(self, prefix: str, tars: int) -> list[str]:
        """List the keys of samples as far as a submission can know them; none where a key needs its picture.

        prefix: stands before those of the records; tars: of a split in tars, the number of those that are opened.
        """
        return [prefix + self.key(number) for number in range(len(self))] if type(self).key is not Split.key else []

    @abstractmethod
    def __getitem__(self, number: int) -> Record:
        """Read one record.

        Raises `UserError` naming the file that is missing or wrong.
        """


class Source(Variant[S]):
    """A source of images; the login node opens it, too: to count the images and to see that they can be read."""

    @property
    def prefix(self) -> str:
        """Prefix of every key of the source: the collection's name, where it has one."""
        return f"{self.settings.collection}/" if self.settings.collection else ""

    @abstractmethod
    def open_split(self, split: str) -> Split:
        """Open one of `SPLITS`; only what the labels need is read until an image is accessed.

        Raises `UserError` naming the file or the folder that is missing or wrong.
        """

    @abstractmethod
    def content(self) -> str:
        """Hash the images, or what tells them from others, in seconds: it is computed at every submit."""


class TarSource(Source[S]):
    """A source of tars that are read where they lie: samples are found in them, and no tar is written."""

    @abstractmethod
    def tars(self, split: str) -> list[SourceTar]:
        """List the tars with samples of a split, in the order in which these are numbered.

        Raises `UserError` naming the folder that is missing, or has none.
        """

    @abstractmethod
    def folders(self) -> dict[str | None, Path]:
        """Return the folder to which the names of the tars are relative, by the collection's name, None without one."""

    @abstractmethod
    def beside(self) -> list[Item]:
        """List what lies beside the tars; raises as `tars`."""
