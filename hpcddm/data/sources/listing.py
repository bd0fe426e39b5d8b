"""Listing of a folder: its pictures, known by their content whatever their names say, its folders, and all the rest."""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from hpcddm.data.layout import IMAGES
from hpcddm.data.picture_kinds import HEAD_BYTES, is_junk, is_read, other_format
from hpcddm.errors import UserError
from hpcddm.runs.passed_over import JUNK, Item, escaped

EXTENSIONS = frozenset(f".{extension}" for extension in IMAGES)
BESIDE = frozenset((".txt", ".json", ".jsonl", ".cls", ".caption", ".xml", ".csv", ".npy", ".parquet"))
"""Extensions of what people put beside pictures: where a picture has the same name but for it, nobody looks inside."""
LONGEST_EXTENSION = 20
"""Most characters of an extension that a reason names."""
HIDDEN = "hidden files, or in hidden folders"
"""Reason for files whose name, or a folder of theirs, begins with a dot."""


class Listing(NamedTuple):
    """Names in a folder, each list in alphabetical order; passed_over: what is neither picture nor folder."""

    folders: list[str]
    pictures: list[str]
    passed_over: list[Item]


def listed(folder: Path, place: str = "", used: Collection[str] = (), is_of_pictures: bool = True) -> Listing:
    """List a folder, and what is in its hidden folders.

    place: what stands before the names of items, such as the folder's own name and a slash; used: names that are read
    for something else. Only of files whose names are not those of pictures, some bytes are read; is_of_pictures: False
    believes all names of `BESIDE`, of which a folder of tars may have as many. Raises `UserError` naming a folder that
    cannot be read.
    """
    folders, pictures, others = [], [], []
    with _readable(), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            is_file = entry.is_file(follow_symlinks=False)
            # The first question is the fast one.
            if is_file and name[0] != "." and os.path.splitext(name)[1].lower() in EXTENSIONS:
                pictures.append(name)
            elif not is_file and entry.is_dir(follow_symlinks=False) and not is_apart(name):
                folders.append(name)
            elif name not in used:
                others.append(name)
    stems = {os.path.splitext(name)[0] for name in pictures if others} if is_of_pictures else None
    items: list[Item] = []
    for name in sorted(others):
        what = _looked_at(folder / name, place, stems)
        if isinstance(what, str):
            (folders if what == "folder" else pictures).append(name)
        else:
            items += what
    return Listing(sorted(folders), sorted(pictures), items)


def beside(folder: Path, used: Collection[str], what: str) -> list[Item]:
    """List all that lies in a folder but what is used; folders are named, and not looked into. what: that is used."""
    folders, pictures, items = listed(folder, used=used)
    lost = [Item(escaped(name), f"pictures beside {what}", True) for name in pictures if name not in used]
    others = [Item(f"{escaped(name)}/", f"folders beside {what}") for name in folders if name not in used]
    return [*lost, *others, *items]


def holds_picture(folder: Path) -> bool:
    """Tell if a folder has a picture; raises as `listed`."""
    with _readable(), os.scandir(folder) as entries:
        for entry in entries:
            has_name = entry.name[0] != "." and os.path.splitext(entry.name)[1].lower() in EXTENSIONS
            if has_name and entry.is_file(follow_symlinks=False):
                return True
    return bool(listed(folder).pictures)


def all_below(folder: Path, place: str, reason: str) -> list[Item]:
    """List all files in a folder and below it as items of one reason; of a folder without any file, itself."""
    items = []
    for root, _, names in os.walk(folder, onerror=refuse):
        inner = os.path.relpath(root, folder)
        before = place if inner == "." else f"{place}{inner}/"
        items += [Item(escaped(f"{before}{name}"), reason) for name in sorted(names)]
    return sorted(items) or [Item(escaped(place), reason)]


def file_item(path: Path, name: str) -> Item | None:
    """Say why a file is passed over, by its first bytes; None for a picture of a format that is read."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        return Item(escaped(name), f"unreadable files ({error.strerror})")
    if is_read(head):
        return None
    unread = other_format(head)
    return Item(escaped(name), f"pictures in {unread}", True) if unread else Item(escaped(name), _kind_of(name))


def _looked_at(path: Path, place: str, stems: Collection[str] | None) -> str | list[Item]:
    """Return 'folder' or 'picture', or the items of what is neither.

    stems: names without extensions beside which those of `BESIDE` are believed; None for any.
    """
    name = path.name
    full = f"{place}{name}"
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        is_lost = os.path.splitext(name)[1].lower() in EXTENSIONS and not is_apart(name)
        return [Item(escaped(full), f"links that lead nowhere ({error.strerror})", is_broken=is_lost)]
    reason = JUNK if is_junk(name) else HIDDEN
    if stat.S_ISDIR(mode):
        return all_below(path, f"{full}/", reason) if is_apart(name) else "folder"
    if reason == JUNK:
        return [Item(escaped(full), JUNK)]
    if not stat.S_ISREG(mode):
        return [Item(escaped(full), "pipes, sockets and devices")]
    stem, extension = os.path.splitext(name)
    if name[0] != "." and extension.lower() in EXTENSIONS:
        return "picture"
    if extension.lower() in BESIDE and (stems is None or stem in stems):
        return [Item(escaped(full), _kind_of(name))]
    item = file_item(path, full)
    if name[0] != ".":
        return "picture" if item is None else [item]
    return [
        Item(escaped(full), "hidden pictures", True) if item is None or item.is_broken else item._replace(reason=HIDDEN)
    ]


def is_apart(name: str) -> bool:
    """Tell if a name is hidden or known junk."""
    return name[0] == "." or is_junk(name)


def _kind_of(name: str) -> str:
    extension = escaped(os.path.splitext(name)[1].lower())[:LONGEST_EXTENSION]
    return f"files {extension}" if extension else "files without extension"


def refuse(error: OSError) -> NoReturn:
    """Raise the error of `os.walk` as a `UserError`."""
    raise UserError(
        f"{error.filename}: cannot be read ({error.strerror}); mend its permissions, or remove it"
    ) from None


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        refuse(error)
