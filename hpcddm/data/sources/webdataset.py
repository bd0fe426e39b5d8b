"""WebDataset tars that are read where they lie, such as those of img2dataset; none of them is written or copied.

A sample is what WebDataset takes for one: the members of one key, one behind the other. With the defaults, a member
whose extension is that of a picture is its image, as is a picture without an extension, `txt` its caption and `cls` its
class; `json:caption` would be the entry `caption` of the JSON object beside the image.
"""

import hashlib
import os
from collections import deque
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field as SchemaField

from hpcddm.config.schema import PathSetting
from hpcddm.config.sources import HeldoutTars, SourceSettings
from hpcddm.data.adopted import SourceTar
from hpcddm.data.catalog import stamp_of
from hpcddm.data.layout import CAPTION, IMAGES, LABEL, Field, Layout, extension_of
from hpcddm.data.sources.adopted_split import AdoptedSplit
from hpcddm.data.sources.base import SPLITS, TarSource
from hpcddm.data.sources.listing import is_apart, listed, refuse
from hpcddm.data.sources.shares import is_heldout
from hpcddm.data.tar_headers import COMPRESSED_TAR
from hpcddm.errors import UserError, require
from hpcddm.runs.passed_over import Item, escaped

Place = Annotated[str, SchemaField(pattern=r"^[A-Za-z0-9_.]+(:.+)?$")]
"""An extension, or EXTENSION:ENTRY for an entry of a JSON object."""
EVERY_TAR = "**/*.tar"
"""Pattern of all tars in a folder and below it."""


class Settings(SourceSettings):
    """Folder of the tars, which of them, and what their members are."""

    adopts_tars: ClassVar[bool] = True
    not_hashed: ClassVar[frozenset[str]] = frozenset({"digests"})
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"collection", "needs_end"})

    folder: PathSetting
    tars: str = EVERY_TAR
    """Pattern of the tars' paths in the folder; held-out ones may be among them."""
    heldout: HeldoutTars
    qualified: bool = False
    """True puts the tar's path before every key, for collections in which several tars have the same keys."""
    image: list[str] | None = None
    """Extensions of images, by default those of all formats; where a sample has several, name the one that is meant."""
    caption: Place | None = CAPTION
    label: Place | None = LABEL
    metadata: str = "json"
    """Extension of the JSON object whose entries `data.keep` may name."""
    needs_end: bool = True
    """False reads tars without the zeros that end an archive, as some writers leave them; others have lost members."""
    digests: bool = False
    """True adds the SHA-256 of every tar to size and time in the manifests of the stage shard and in the catalog."""


class WebDatasetTars(TarSource[Settings]):
    """Tars in the order of their paths."""

    def open_split(self, split: str) -> AdoptedSplit:
        opened = AdoptedSplit(self.tars(split), self._share_of(split), self.beside() if split == "train" else [])
        if split == "heldout" and self.settings.heldout.share is not None:
            # Those of the training images have been seen in the same tar.
            opened.passed_over = []
        return opened

    def tars(self, split: str) -> list[SourceTar]:
        layout, is_of_split = self._layout(), partial(self._is_of, split)
        own = self.settings
        return [
            SourceTar(path, layout, self._prefix_in(path), is_of_split, own.digests, Path(own.folder), own.collection)
            for path in self._paths(split)
        ]

    def folders(self) -> dict[str | None, Path]:
        return {self.settings.collection: Path(self.settings.folder)}

    def beside(self) -> list[Item]:
        """List what lies beside the tars; with a pattern of their own, users know which files they leave out."""
        if self.settings.tars != EVERY_TAR:
            return []
        folder, items = Path(self.settings.folder), list[Item]()
        used: dict[Path, list[str]] = {}
        for path in self._matching(EVERY_TAR):
            used.setdefault(path.parent, []).append(path.name)
        for place in _folders(folder):
            inner = place.relative_to(folder).as_posix()
            if inner == "." or not any(map(is_apart, inner.split("/"))):
                items += _beside(place, "" if inner == "." else f"{inner}/", frozenset(used.get(place, ())))
        # Tars are read in hidden folders, too.
        tars = {escaped((place / name).relative_to(folder).as_posix()) for place in used for name in used[place]}
        return [item for item in items if item.name not in tars]

    def content(self) -> str:
        """Hash path, size and time of the last change of every tar; their digest would take days."""
        tars = dict.fromkeys(path for split in SPLITS for path in self._paths(split))
        seen = [(path.relative_to(self.settings.folder).as_posix(), *stamp_of(path)) for path in tars]
        return hashlib.sha256(repr(seen).encode()).hexdigest()

    def _share_of(self, split: str) -> float:
        """Return the share of the samples in a split's tars that belong to it."""
        share = self.settings.heldout.share
        return 1.0 if share is None else {"train": 1 - share, "heldout": share}[split]

    def _layout(self) -> Layout:
        own = self.settings
        label, caption = (None if place is None else Field.parsed(place) for place in (own.label, own.caption))
        images = IMAGES if own.image is None else frozenset(map(extension_of, own.image))
        return Layout(images, label, caption, extension_of(own.metadata), own.needs_end)

    def _prefix_in(self, tar: Path) -> str:
        if not self.settings.qualified:
            return self.prefix
        return f"{self.prefix}{tar.relative_to(self.settings.folder).with_suffix('').as_posix()}/"

    def _is_of(self, split: str, key: str) -> bool:
        share = self.settings.heldout.share
        return share is None or is_heldout(key, share) == (split == "heldout")

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
        if not chosen:
            raise UserError(f"data.source.heldout: of {len(every)} tars none is left for {split}")
        return chosen

    def _matching(self, pattern: str) -> list[Path]:
        folder = Path(self.settings.folder)
        require(folder.is_dir(), f"data.source.folder: {folder} is no folder")
        try:
            fitting = set(_fitting(folder, pattern.split("/")))
            tars = sorted(path for path in fitting if path.is_file())
            lost = sorted(path for path in fitting.difference(tars) if not path.is_dir())
        except OSError as error:
            refuse(error)
        except (ValueError, NotImplementedError) as error:
            raise UserError(f"data.source: {pattern!r} is no pattern of paths in the folder ({error})") from None
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


def _beside(folder: Path, place: str, used: Collection[str]) -> list[Item]:
    """List what lies beside the tars in one folder; place: what stands before the names; used: those of the tars."""
    _, pictures, items = listed(folder, place, used, is_of_pictures=False)
    lost = [Item(escaped(place + name), "pictures beside the tars", True) for name in pictures if name not in used]
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
        for inner in _folders(start):
            yield from _fitting(inner, pattern[place + 1 :])


def _folders(folder: Path) -> Iterator[Path]:
    """Yield a folder and all below it; behind links, which may lead in circles, those that no other path leads to."""
    seen = set[tuple[int, int]]()
    waiting = deque([folder])
    while waiting:
        for place, names, _ in os.walk(waiting.popleft(), onerror=refuse):
            status = os.stat(place)
            if (status.st_dev, status.st_ino) in seen:
                names.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            yield Path(place)
            waiting += sorted(path for name in names if (path := Path(place, name)).is_symlink())
