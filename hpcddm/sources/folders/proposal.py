"""Proposals of sources for a folder that nobody has described: the keys with which one of them can read it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from hpcddm.config.cross_checks import MIN_IMAGES
from hpcddm.config.sources import HELDOUT_SHARE
from hpcddm.errors import UserError
from hpcddm.sources.folders.survey import FolderSurvey

MAX_PICTURES = 200
"""Pictures that are opened of one proposal."""
FEW_HELDOUT, MANY_HELDOUT = 1.5 * MIN_IMAGES, 10_000
"""Images that are held out at least, since a share by a hash may be smaller than it should be, and at most."""
MAX_SHARE = 0.5


class SamplePicture(NamedTuple):
    """One picture: its name, and its file or pixels, or the reason why there are none."""

    name: str
    content: bytes | Image.Image | None
    reason: str = ""


@dataclass
class SourceProposal:
    """Settings with which a source can read a folder, and what it would read.

    Attributes:
        layout: Layout of the files in a few words, such as 'images in one folder per class'.
        source: Keys of `data.source` without `name`.
        images: Number of images; None if unknown.
        is_exact: False if the number is an estimate.
        class_names: Names of the classes, or their numbers as texts; empty without classes.
        heldout_of_class: Fewest held-out images of a class, about.
        captions: Place of the captions; empty without captions.
        example: One caption.
        remarks: What is odd, one line each.
        pictures: Some of the pictures, which are read when they are iterated.
        error: Reason why the source refuses the files, with the next step; None if it reads them.
        is_specific: True for a layout that others only resemble, which is therefore shown first.
    """

    layout: str
    source: dict[str, Any]
    images: int | None = None
    is_exact: bool = True
    class_names: list[str] = field(default_factory=list)
    heldout_of_class: int = 0
    captions: str = ""
    example: str = ""
    remarks: list[str] = field(default_factory=list)
    pictures: Iterable[SamplePicture] = ()
    error: str | None = None
    is_specific: bool = False

    def with_captions(self, place: str, source: dict[str, Any], example: str, remarks: list[str]) -> "SourceProposal":
        """Return the proposal with captions: their place, the keys that name it, one caption, and what is odd."""
        source, remarks = self.source | source, self.remarks + remarks
        return replace(self, source=source, captions=place, example=example, remarks=remarks)

    @contextmanager
    def keep_error(self) -> Iterator[None]:
        """Keep a `UserError` as the reason why the source refuses the files."""
        try:
            yield
        except UserError as error:
            self.error = str(error)


def heldout_share(images: int) -> float:
    """Return the share of images to hold out: a fifth, more of few images, for the report, and less of very many.

    Examples:
        >>> [heldout_share(images) for images in (40, 100, 1000, 4_000_000)]
        [0.5, 0.3, 0.2, 0.0025]
    """
    wanted = min(max(HELDOUT_SHARE * images, FEW_HELDOUT), MANY_HELDOUT)
    return float(f"{min(wanted / max(images, 1), MAX_SHARE):.2g}")


def read_pictures(root: Path, names: Iterable[str]) -> Iterator[SamplePicture]:
    """Read files of pictures one by one."""
    for name in names:
        try:
            yield SamplePicture(name, (root / name).read_bytes())
        except OSError as error:
            yield SamplePicture(name, None, f"cannot be read ({error.strerror})")


def sample_of(survey: FolderSurvey, places: Iterable[str]) -> Iterator[SamplePicture]:
    """Read some pictures that are files directly in some folders."""
    return read_pictures(survey.root, survey.sample_pictures(list(places), MAX_PICTURES))
