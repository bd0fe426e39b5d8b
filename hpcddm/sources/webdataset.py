"""WebDataset tars that are read where they lie, such as those of img2dataset; none of them is written or copied.

A sample is what WebDataset takes for one: the members of one key, one behind the other. With the defaults, a member
whose extension is that of a picture is its image, as is a picture without an extension, `txt` its caption and `cls` its
class; `json:caption` would be the entry `caption` of the JSON object beside the image.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field as SchemaField

from hpcddm.config.schema import PathSetting
from hpcddm.config.sources import HeldoutTars, SourceSettings
from hpcddm.data.sample_file import size_and_mtime
from hpcddm.data.tars.tar_headers import COMPRESSED_TAR
from hpcddm.data.tars.tar_layout import CAPTION, IMAGES, LABEL, TarLayout, ValueLocation, extension_of
from hpcddm.errors import UserError, require
from hpcddm.runs.passed_over import PassedOverItem, escape_name
from hpcddm.sources import webdataset_proposals
from hpcddm.sources.base import SPLITS, InPlaceSource
from hpcddm.sources.folders.proposal import SourceProposal
from hpcddm.sources.folders.survey import FolderSurvey
from hpcddm.sources.heldout_share import is_of_split, share_of
from hpcddm.sources.listing import (
    folders_below,
    is_hidden_or_junk,
    list_folder,
    raise_user_error,
    require_folder,
    split_pattern,
)
from hpcddm.sources.tars.existing_tars import SourceTar
from hpcddm.sources.unindexed_split import UnindexedSplit

LocationText = Annotated[str, SchemaField(pattern=r"^[A-Za-z0-9_.]+(:.+)?$")]
"""An extension, or EXTENSION:ENTRY for an entry of a JSON object."""
EVERY_TAR = "**/*.tar"
"""Pattern of all tars in a folder and below it."""


class WebDatasetTarsSettings(SourceSettings):
    """Folder of the tars, which of them, and what their members are."""

    uses_existing_tars: ClassVar[bool] = True
    not_hashed: ClassVar[frozenset[str]] = frozenset({"hash_tars"})
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"collection", "require_end"})

    folder: PathSetting
    tars: str = EVERY_TAR
    """Pattern of the tars' paths in the folder; held-out ones may be among them."""
    heldout: HeldoutTars
    prefix_keys: bool = False
    """True puts the tar's path before every key, for collections in which several tars have the same keys."""
    image: list[str] | None = None
    """Extensions of images, by default those of all formats; where a sample has several, name the one that is meant."""
    caption: LocationText | None = CAPTION
    label: LocationText | None = LABEL
    metadata: str = "json"
    """Extension of the JSON object whose entries `data.filter` may name."""
    require_end: bool = True
    """False reads tars without the zeros that end an archive, as some writers leave them; others have lost members."""
    hash_tars: bool = False
    """True adds the SHA-256 of every tar to size and time in the manifests of the stage shard and in the catalog."""

    def source_folders(self) -> dict[str | None, Path]:
        """Return the folder of the tars."""
        return {self.collection: Path(self.folder)}


class WebDatasetTars(InPlaceSource[WebDatasetTarsSettings]):
    """Tars in the order of their paths."""

    @classmethod
    def propose(cls, survey: FolderSurvey) -> list[SourceProposal]:
        return webdataset_proposals.propose(survey)

    def open_split(self, split: str) -> UnindexedSplit:
        share, beside = self.settings.heldout.share, self.unused_files() if split == "train" else []
        opened = UnindexedSplit(self.tars(split), share_of(split, share), beside)
        if split == "heldout" and share is not None:
            # Those of the training images have been seen in the same tar.
            opened.passed_over = []
        return opened

    def tars(self, split: str) -> Sequence[SourceTar]:
        own, layout = self.settings, self._layout()
        is_of = partial(is_of_split, split, own.heldout.share)
        return [
            SourceTar(path, self._prefix_in(path), is_of, own.hash_tars, Path(own.folder), own.collection, layout)
            for path in self._paths(split)
        ]

    def unused_files(self) -> list[PassedOverItem]:
        """List the files next to the tars; none with a user's pattern, which leaves files out on purpose."""
        if self.settings.tars != EVERY_TAR:
            return []
        folder, items = Path(self.settings.folder), list[PassedOverItem]()
        used: dict[Path, list[str]] = {}
        for path in self._matching(EVERY_TAR):
            used.setdefault(path.parent, []).append(path.name)
        for place in folders_below(folder):
            inner = place.relative_to(folder).as_posix()
            if inner == "." or not any(map(is_hidden_or_junk, inner.split("/"))):
                items += _beside(place, "" if inner == "." else f"{inner}/", frozenset(used.get(place, ())))
        # Tars are read in hidden folders, too.
        tars = {escape_name((place / name).relative_to(folder).as_posix()) for place in used for name in used[place]}
        return [item for item in items if item.name not in tars]

    def content_hash(self) -> str:
        """Hash path, size and time of the last change of every tar; their digest would take days."""
        tars = dict.fromkeys(path for split in SPLITS for path in self._paths(split))
        seen = [(path.relative_to(self.settings.folder).as_posix(), *size_and_mtime(path)) for path in tars]
        return hashlib.sha256(repr(seen).encode()).hexdigest()

    def _layout(self) -> TarLayout:
        own = self.settings
        label, caption = (None if place is None else ValueLocation.parse(place) for place in (own.label, own.caption))
        images = IMAGES if own.image is None else frozenset(map(extension_of, own.image))
        return TarLayout(images, label, caption, extension_of(own.metadata), own.require_end)

    def _prefix_in(self, tar: Path) -> str:
        if not self.settings.prefix_keys:
            return self.prefix
        return f"{self.prefix}{tar.relative_to(self.settings.folder).with_suffix('').as_posix()}/"

    def _paths(self, split: str) -> list[Path]:
        heldout, every = self.settings.heldout, self._matching(self.settings.tars)
        if heldout.share is not None:
            return every
        if heldout.tars is not None:
            own = self._matching(heldout.tars)
            chosen = own if split == "heldout" else sorted(set(every) - set(own))
        else:
            count = heldout.shards or 0
            chosen = every[-count:] if split == "heldout" else every[:-count]
        require(chosen != [], f"data.source.heldout: of {len(every)} tars none is left for {split}")
        return chosen

    def _matching(self, pattern: str) -> list[Path]:
        folder = Path(self.settings.folder)
        require_folder("folder", folder)
        try:
            fitting = set(_fitting(folder, split_pattern(pattern)))
            tars = sorted(path for path in fitting if path.is_file())
            lost = sorted(path for path in fitting.difference(tars) if not path.is_dir())
        except OSError as error:
            raise_user_error(error)
        except (ValueError, NotImplementedError) as error:
            raise UserError(f"data.source: {pattern!r} is not a pattern of paths in the folder ({error})") from None
        require(
            not lost, f"data.source: {', '.join(map(str, lost[:1]))} leads to no file; fetch the file, or remove this"
        )
        # With a pattern of their own, users know which files they leave out.
        compressed = _compressed(folder) if pattern == EVERY_TAR or not tars else []
        if compressed:
            others = f", as are {len(compressed) - 1} more" * (len(compressed) > 1)
            advice = "decompress all, or name the tars that are meant by data.source.tars"
            raise UserError(f"data.source: {compressed[0]} is compressed{others}; {advice}")
        require(tars != [], f"data.source: no file of {folder} fits {pattern}")
        return tars


def _beside(folder: Path, place: str, used: Collection[str]) -> list[PassedOverItem]:
    """List the files next to the tars in one folder; place: text before the names; used: names of the tars."""
    _, pictures, items = list_folder(folder, place, used, is_of_pictures=False)
    lost = [
        PassedOverItem(escape_name(place + name), "pictures beside the tars", True)
        for name in pictures
        if name not in used
    ]
    return [*lost, *items]


def _compressed(folder: Path) -> list[Path]:
    """List the compressed tars in a folder and below it."""
    return sorted(path for path in _fitting(folder, ["**", "*.t*"]) if COMPRESSED_TAR.search(path.name))


def _fitting(folder: Path, pattern: list[str]) -> Iterator[Path]:
    """Yield what fits a pattern, split at its slashes; `**` follows links to folders, as `Path.glob` does not."""
    if any("**" in part and part != "**" for part in pattern):
        # Since Python 3.13 `Path.glob` takes it for one star.
        raise ValueError("'**' must be a whole part of the path")
    if "**" not in pattern:
        yield from folder.glob("/".join(pattern))
        return
    place = pattern.index("**")
    for start in folder.glob("/".join(pattern[:place])) if place else [folder]:
        for inner in folders_below(start):
            yield from _fitting(inner, pattern[place + 1 :])
