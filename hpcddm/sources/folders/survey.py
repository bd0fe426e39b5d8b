"""Bounded survey of a folder of any size: all names are counted, and only the first bytes of some files are read."""

import os
from collections import Counter, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, zip_longest
from pathlib import Path

from hpcddm.files.junk import is_junk
from hpcddm.sources.file_kinds import HEAD_BYTES, is_readable_image, unreadable_format
from hpcddm.sources.listing import EXTENSIONS, SIDECAR_EXTENSIONS

MAX_FILES = 2_000_000
"""Files after which counting stops."""
MAX_FOLDERS = 30_000
"""Folders that are listed; ImageNet-21k has 21,841."""
MAX_LINKS = 10_000
"""Links that are followed; further ones count as files."""
NAMES_KEPT, FEW_NAMES_KEPT, MANY_FOLDERS = 200, 5, 500
"""Names of one extension that are kept of each folder; the second number holds for folders after the third."""
HEADS, KINDS = 3, 20
"""Files of one extension whose first bytes are read, and extensions for which this is done."""


@dataclass
class SurveyedFolder:
    """Content of one folder.

    Attributes:
        place: Path in the surveyed folder; empty for this folder itself.
        folders: Names of the folders in it, in alphabetical order.
        counts: Numbers of files by extension, in lower case and with the dot.
        names: First names by extension.
    """

    place: str
    folders: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    names: dict[str, list[str]] = field(default_factory=dict)

    def path_of(self, name: str) -> str:
        """Return the path of a file or folder in the surveyed folder."""
        return f"{self.place}/{name}" if self.place else name


class FolderSurvey:
    """Files and folders in a folder and below it, without those that are hidden or junk.

    Args:
        root: The folder.
        only: Name of the one file in it that is surveyed; None for all.

    Attributes:
        folders: Surveyed folders by their path in `root`, that of `root` itself, '', first.
        counts: Numbers of files by extension in all folders.
        file_count: Number of files, or of those up to the limit.
        is_whole: False if counting stopped at a limit.
        hidden: Number of hidden files and folders, and of what operating systems leave behind.
        lost_links: Some links that lead nowhere.
        unreadable: Some folders that cannot be listed.

    Raises:
        OSError: `root` itself cannot be listed.
    """

    def __init__(self, root: Path, only: str | None = None) -> None:
        self.root, self.only = root, only
        self.folders: dict[str, SurveyedFolder] = {}
        self.counts: Counter[str] = Counter()
        self.is_whole, self.hidden = True, 0
        self.lost_links: list[str] = []
        self.unreadable: list[str] = []
        self.file_count, self._links = 0, 0
        self._visited: set[tuple[int, int]] = set()
        if only is not None:
            self.folders[""] = SurveyedFolder("")
            self._add_file(self.folders[""], only)
            return
        waiting = deque([""])
        while waiting:
            place = waiting.popleft()
            if len(self.folders) == MAX_FOLDERS or self.file_count >= MAX_FILES:
                self.is_whole = False
                break
            try:
                waiting += self._list(place)
            except OSError:
                if not place:
                    raise
                self.unreadable.append(place)

    @property
    def top(self) -> SurveyedFolder:
        """The surveyed folder itself."""
        return self.folders[""]

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Formats of the files that are pictures in spite of their extensions, by extension; 'picture' if readable."""
        kinds: dict[str, str] = {}
        others = [name for name, _ in self.counts.most_common() if name not in EXTENSIONS | SIDECAR_EXTENSIONS]
        for extension in others[:KINDS]:
            for path in islice(self._names([extension], list(self.folders)), HEADS):
                head = self._head(path)
                kind = "picture" if is_readable_image(head) else unreadable_format(head)
                if kind is not None:
                    kinds.setdefault(extension, kind)
        return kinds

    @cached_property
    def picture_extensions(self) -> frozenset[str]:
        """Extensions of readable pictures, the usual ones and those of files that begin like a picture."""
        return EXTENSIONS | {name for name, kind in self.kinds.items() if kind == "picture"}

    @cached_property
    def places_with_pictures(self) -> frozenset[str]:
        """Paths of the folders that have pictures directly or in folders below them."""
        places: set[str] = set()
        for place in self.folders:
            if self.picture_count(place):
                parts = place.split("/")
                places.update("/".join(parts[:count]) for count in range(len(parts) + 1))
        return frozenset(places)

    def picture_count(self, place: str) -> int:
        """Count the pictures directly in a folder by their extensions; 0 for a folder that is not surveyed."""
        folder = self.folders.get(place)
        return sum(folder.counts[name] for name in self.picture_extensions) if folder else 0

    def sample_pictures(self, places: Collection[str], most: int) -> list[str]:
        """List paths of some pictures directly in some folders, from as many of these as possible."""
        with_pictures = [place for place in places if self.picture_count(place)]
        spread = with_pictures[:: max(len(with_pictures) // most, 1)]
        return sorted(islice(self._names(sorted(self.picture_extensions), spread), most))

    def paths(self, extensions: Collection[str], place: str = "", most: int = 100_000) -> list[Path]:
        """List the files of some extensions in a folder and below it, in order; at most so many."""
        chosen = []
        for folder in self.folders.values():
            is_below = not place or folder.place == place or folder.place.startswith(f"{place}/")
            if is_below and any(folder.counts[name] for name in extensions):
                for name in self._all_names(folder, extensions):
                    chosen.append(self.root / folder.path_of(name))
        return sorted(chosen)[:most]

    def has_file(self, path: str) -> bool:
        """Tell if there is a file at a path in the folder."""
        return self.only in (None, path) and (self.root / path).is_file()

    def _list(self, place: str) -> list[str]:
        """Count the files of a folder; return the folders in it."""
        path = self.root / place
        status = os.stat(path)
        if (status.st_dev, status.st_ino) in self._visited:
            return []
        self._visited.add((status.st_dev, status.st_ino))
        folder = SurveyedFolder(place)
        with os.scandir(path) as entries:
            self.folders[place] = folder
            for entry in entries:
                self._add(folder, entry)
                if self.file_count >= MAX_FILES:
                    self.is_whole = False
                    break
        folder.folders.sort()
        return [folder.path_of(name) for name in folder.folders]

    def _add(self, folder: SurveyedFolder, entry: "os.DirEntry[str]") -> None:
        name = entry.name
        if name[0] == ".":
            self.hidden += 1
        elif entry.is_file(follow_symlinks=False):
            self._add_file(folder, name)
        elif entry.is_symlink() and self._links < MAX_LINKS:
            self._links += 1
            if not os.path.exists(entry.path):
                self.lost_links.append(folder.path_of(name))
            elif entry.is_dir():
                folder.folders.append(name)
            elif entry.is_file():
                self._add_file(folder, name)
        elif is_junk(name):
            self.hidden += 1
        elif entry.is_dir(follow_symlinks=False):
            folder.folders.append(name)
        elif entry.is_symlink():
            self._add_file(folder, name)

    def _add_file(self, folder: SurveyedFolder, name: str) -> None:
        extension = os.path.splitext(name)[1].lower()
        if extension not in EXTENSIONS and is_junk(name):
            self.hidden += 1
            return
        self.file_count += 1
        self.counts[extension] += 1
        folder.counts[extension] += 1
        if folder.counts[extension] <= (NAMES_KEPT if len(self.folders) < MANY_FOLDERS else FEW_NAMES_KEPT):
            folder.names.setdefault(extension, []).append(name)

    def _names(self, extensions: Collection[str], places: Collection[str]) -> Iterator[str]:
        """Yield paths of files that are kept by name, one of each folder in turn."""
        by_folder = [
            [folder.path_of(name) for extension in extensions for name in folder.names.get(extension, ())]
            for folder in (self.folders[place] for place in places)
        ]
        yield from (path for path in chain.from_iterable(zip_longest(*by_folder)) if path is not None)

    def _all_names(self, folder: SurveyedFolder, extensions: Collection[str]) -> list[str]:
        """List all files of some extensions in a folder, which is listed again if not all names are kept."""
        if all(len(folder.names.get(name, ())) == folder.counts[name] for name in extensions):
            return [name for extension in extensions for name in folder.names.get(extension, ())]
        with os.scandir(self.root / folder.place) as entries:
            names = (entry.name for entry in entries)
            return [name for name in names if name[0] != "." and os.path.splitext(name)[1].lower() in extensions]

    def _head(self, path: str) -> bytes:
        try:
            with open(self.root / path, "rb") as file:
                return file.read(HEAD_BYTES)
        except OSError:
            return b""
