"""Bases of the sources of images: records that are written to tars, or existing tars that are read in place."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from hpcddm.config.sources import SourceSettings
from hpcddm.config.variants import Variant
from hpcddm.data.tars.record import Record
from hpcddm.errors import require
from hpcddm.runs.passed_over import PassedOverItem
from hpcddm.sources.folders.proposal import SourceProposal
from hpcddm.sources.folders.survey import FolderSurvey
from hpcddm.sources.source_files import SourceFile

S = TypeVar("S", bound=SourceSettings)
SPLITS = ("train", "heldout")
KNOWN = frozenset({"key", "label", "caption", "width", "height"})
"""Names of the values that a filter may use for any sample; a sample may lack some of them."""


class Split(ABC):
    """The records of one split in a fixed order, read one by one.

    Attributes:
        labels: Class of every record, (N,); None without classes.
        class_names: Names of the classes, by class number, all different; empty without classes.
        has_captions: True if every record has a caption.
        is_exact: False if only the catalog knows number and classes of the records, and the length is an estimate.
        known: Names of the values that a filter may use.
        passed_over: Files beside the records that are not records, each in one split only.
        tar_count: Number of tars that hold the records.
    """

    labels: Int64[np.ndarray, " n"] | None
    class_names: list[str]
    has_captions: bool = False
    is_exact: bool = True
    known: frozenset[str] = KNOWN
    passed_over: Sequence[PassedOverItem] = ()
    tar_count: int = 1

    @property
    def has_labels(self) -> bool:
        """True if the records have classes."""
        return self.labels is not None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of records."""

    def rename_classes(self, names: list[str]) -> None:
        """Give the classes the names of `data.class_names`, which captions made from names then contain.

        Args:
            names: Names by class number.

        Raises:
            UserError: There are more or fewer classes.
        """
        count = len(self.class_names)
        require(len(names) == count, f"data.class_names: {len(names)} names, but data.source has {count} classes")
        self.class_names = names

    def key(self, number: int) -> str:
        """Return the key of a record; sources that know it without reading the picture override this."""
        return self[number].key

    def keys(self, prefix: str, tars: int) -> list[str]:
        """List the keys of the samples that a submission can know; empty if a key requires reading its picture.

        Args:
            prefix: Text before the key of each record.
            tars: Number of tars to open in a split of tars.
        """
        return [prefix + self.key(number) for number in range(len(self))] if type(self).key is not Split.key else []

    @abstractmethod
    def __getitem__(self, number: int) -> Record:
        """Read one record.

        Args:
            number: Number of the record, from 0.

        Raises:
            UserError: A file is missing or wrong; the message names it.
        """


class Source(Variant[S]):
    """Source of images; the login node also opens it to count the images and to check that they are readable."""

    @property
    def prefix(self) -> str:
        """Prefix of every key of the source: the name of its collection and a slash, or empty."""
        return f"{self.settings.collection}/" if self.settings.collection else ""

    @classmethod
    def propose(cls, survey: FolderSurvey) -> list[SourceProposal]:
        """Propose how to read a folder that `hpcddm data` has surveyed; nothing for a folder that is not of this kind.

        The survey says what is in the folder; at most some dozen files may be opened.
        """
        return []

    @abstractmethod
    def open_split(self, split: str) -> Split:
        """Open one of `SPLITS`; until an image is accessed, only files that the labels need are read.

        Args:
            split: 'train' or 'heldout'.

        Raises:
            UserError: A file or folder is missing or wrong; the message names it.
        """

    def has_heldout(self) -> bool:
        """Tell if the settings or the files say which images are held out; where not, a share of all is by default.

        Sources with a key `heldout: {share: ...}` override this. Raises `UserError` for a folder that is wrong.
        """
        return True

    @abstractmethod
    def content_hash(self) -> str:
        """Hash the images, or properties that identify them, within seconds: every submit computes the hash."""


class InPlaceSource(Source[S]):
    """Source of tars that are read in place; no tars are written."""

    @abstractmethod
    def tars(self, split: str) -> Sequence[SourceFile]:
        """List the tars with samples of a split, in the order in which the samples are numbered.

        Args:
            split: 'train' or 'heldout'.

        Raises:
            UserError: The folder is missing or has no tars; the message names it.
        """

    def class_names(self) -> list[str]:
        """Return the names of the classes as the files state them; empty for files that do not."""
        return []

    @abstractmethod
    def unused_files(self) -> list[PassedOverItem]:
        """List the files beside the tars; errors are those of `tars`."""
