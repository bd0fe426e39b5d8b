"""Listing of a folder: its pictures, known by their content whatever their names say, its folders, and all the rest."""

import os
import stat
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from hpcddm.data.tars.tar_layout import IMAGES
from hpcddm.errors import UserError, require
from hpcddm.files.junk import is_junk
from hpcddm.runs.passed_over import JUNK, PassedOverItem, escape_name
from hpcddm.sources.file_kinds import HEAD_BYTES, is_readable_image, unreadable_format

EXTENSIONS = frozenset(f".{extension}" for extension in IMAGES)
SIDECAR_EXTENSIONS = frozenset((".txt", ".json", ".jsonl", ".cls", ".caption", ".xml", ".csv", ".npy", ".parquet"))
"""Extensions of files that accompany pictures: such a file is not opened if a picture has the same stem."""
MAX_EXTENSION_LENGTH = 20
"""Most characters of an extension that a reason names."""
MAX_DEEP_PARTS = 2
"""Most parts `**` of a pattern of paths."""
INNER_IMAGES = "images"
"""Name of a folder in that of a class which holds its images."""
HIDDEN = "hidden files, or in hidden folders"
"""Reason for files whose name, or a folder of theirs, begins with a dot."""


class Listing(NamedTuple):
    """Names in a folder, each list in alphabetical order; passed_over: what is neither picture nor folder."""

    folders: list[str]
    images: list[str]
    passed_over: list[PassedOverItem]


@dataclass
class CaptionFiles:
    """Files with one extension beside pictures of the same name: their number, and the first of them."""

    count: int = 0
    first: str = ""

    def add(self, name: str) -> None:
        """Count one more file."""
        self.count += 1
        self.first = self.first or name


def list_folder(
    folder: Path,
    place: str = "",
    used: Collection[str] = (),
    is_of_pictures: bool = True,
    captions: Mapping[str, CaptionFiles] | None = None,
) -> Listing:
    """List a folder, and what is in its hidden folders.

    place: text before the names of items, such as the folder's name and a slash; used: names that have another use.
    Some bytes are read only of files without a picture's name. is_of_pictures: False trusts all names in
    `SIDECAR_EXTENSIONS` as well, since a folder of tars may have many of them. captions: files beside pictures of the
    same name that have one of these extensions are not listed, but counted here. Raises `UserError` naming a folder
    that cannot be read.
    """
    folders, pictures, others = [], [], []
    with _readable(), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            is_file = entry.is_file(follow_symlinks=False)
            # The first question is the fast one.
            if is_file and name[0] != "." and os.path.splitext(name)[1].lower() in EXTENSIONS:
                pictures.append(name)
            elif not is_file and entry.is_dir(follow_symlinks=False) and not is_hidden_or_junk(name):
                folders.append(name)
            elif name not in used:
                others.append(name)
    stems = {os.path.splitext(name)[0] for name in pictures if others} if is_of_pictures else None
    items: list[PassedOverItem] = []
    for name in sorted(others):
        stem, extension = os.path.splitext(name)
        if captions and extension in captions and stem in (stems or ()):
            captions[extension].add(f"{place}{name}")
            continue
        what = _looked_at(folder / name, place, stems)
        if isinstance(what, str):
            (folders if what == "folder" else pictures).append(name)
        else:
            items += what
    return Listing(sorted(folders), sorted(pictures), items)


def require_folder(key: str, folder: Path) -> None:
    """Raise `UserError` naming the key if its value is not a folder."""
    advice = "; variables are not expanded here: write the whole path" * ("$" in str(folder))
    require(folder.is_dir(), f"data.source.{key}: {folder} is not a folder{advice}")


def list_unused(folder: Path, used: Collection[str], what: str) -> list[PassedOverItem]:
    """List a folder's content except the used names; folders are not searched. what: text for the used files."""
    folders, pictures, items = list_folder(folder, used=used)
    lost = [PassedOverItem(escape_name(name), f"pictures beside {what}", True) for name in pictures if name not in used]
    others = [PassedOverItem(f"{escape_name(name)}/", f"folders beside {what}") for name in folders if name not in used]
    return [*lost, *others, *items]


def is_inner_images(names: Collection[str], pictures: int) -> bool:
    """Tell if the folders in that of a class are just one with its images, as in Tiny-ImageNet's train/CLASS/images/.

    Args:
        names: Names of the folders.
        pictures: Number of pictures beside them.
    """
    return not pictures and [name.lower() for name in names] == [INNER_IMAGES]


def contains_image(folder: Path) -> bool:
    """Tell if a folder has a picture; raises as `list_folder`."""
    with _readable(), os.scandir(folder) as entries:
        for entry in entries:
            has_name = entry.name[0] != "." and os.path.splitext(entry.name)[1].lower() in EXTENSIONS
            if has_name and entry.is_file(follow_symlinks=False):
                return True
    return bool(list_folder(folder).images)


def list_recursively(folder: Path, place: str, reason: str) -> list[PassedOverItem]:
    """List all files in a folder and below it as items of one reason; of a folder without any file, itself."""
    items = []
    for root, _, names in os.walk(folder, onerror=raise_user_error):
        inner = os.path.relpath(root, folder)
        before = place if inner == "." else f"{place}{inner}/"
        items += [PassedOverItem(escape_name(f"{before}{name}"), reason) for name in sorted(names)]
    return sorted(items) or [PassedOverItem(escape_name(place), reason)]


def file_item(path: Path, name: str) -> PassedOverItem | None:
    """Say why a file is passed over, by its first bytes; None for a picture of a format that is read."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        return PassedOverItem(escape_name(name), f"unreadable files ({error.strerror})")
    if is_readable_image(head):
        return None
    unread = unreadable_format(head)
    return PassedOverItem(escape_name(name), f"pictures in {unread}" if unread else _kind_of(name), bool(unread))


def _looked_at(path: Path, place: str, stems: Collection[str] | None) -> str | list[PassedOverItem]:
    """Return 'folder' or 'picture', or the items of what is neither.

    stems: names of pictures without extensions, for which the extensions of `SIDECAR_EXTENSIONS` are trusted; None for
    any.
    """
    name = path.name
    full = f"{place}{name}"
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        is_lost = os.path.splitext(name)[1].lower() in EXTENSIONS and not is_hidden_or_junk(name)
        return [PassedOverItem(escape_name(full), f"links that lead nowhere ({error.strerror})", is_broken=is_lost)]
    reason = JUNK if is_junk(name) else HIDDEN
    if stat.S_ISDIR(mode):
        return list_recursively(path, f"{full}/", reason) if is_hidden_or_junk(name) else "folder"
    if reason == JUNK:
        return [PassedOverItem(escape_name(full), JUNK)]
    if not stat.S_ISREG(mode):
        return [PassedOverItem(escape_name(full), "pipes, sockets and devices")]
    stem, extension = os.path.splitext(name)
    if name[0] != "." and extension.lower() in EXTENSIONS:
        return "picture"
    if extension.lower() in SIDECAR_EXTENSIONS and (stems is None or stem in stems):
        return [PassedOverItem(escape_name(full), _kind_of(name))]
    item = file_item(path, full)
    if name[0] != ".":
        return "picture" if item is None else [item]
    return [
        PassedOverItem(escape_name(full), "hidden pictures", True)
        if item is None or item.is_broken
        else item._replace(reason=HIDDEN)
    ]


def is_hidden_or_junk(name: str) -> bool:
    """Tell if a name is hidden or known junk."""
    return name[0] == "." or is_junk(name)


def _kind_of(name: str) -> str:
    extension = escape_name(os.path.splitext(name)[1].lower())[:MAX_EXTENSION_LENGTH]
    return f"files {extension}" if extension else "files without extension"


def raise_user_error(error: OSError) -> NoReturn:
    """Raise the error of `os.walk` as a `UserError`."""
    raise UserError(
        f"{error.filename}: cannot be read ({error.strerror}); mend its permissions, or remove it"
    ) from None


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise_user_error(error)


def split_pattern(pattern: str) -> list[str]:
    """Split a pattern of paths at its slashes.

    Raises ValueError for too many parts `**`: each multiplies the folders that are searched by their depth.
    """
    parts = pattern.split("/")
    if parts.count("**") > MAX_DEEP_PARTS:
        raise ValueError(f"it has {parts.count('**')} parts '**', more than {MAX_DEEP_PARTS}")
    return parts


def folders_below(folder: Path) -> Iterator[Path]:
    """Yield a folder and all below it; behind links, which may lead in circles, those that no other path leads to.

    Raises `UserError` naming a folder that cannot be read.
    """
    seen = set[tuple[int, int]]()
    waiting = deque([folder])
    while waiting:
        for place, names, _ in os.walk(waiting.popleft(), onerror=raise_user_error):
            status = os.stat(place)
            if (status.st_dev, status.st_ino) in seen:
                names.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            yield Path(place)
            waiting += sorted(path for name in names if (path := Path(place, name)).is_symlink())
