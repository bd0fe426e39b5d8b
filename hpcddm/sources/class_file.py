"""Names of classes in a file classes.txt beside their folders, which have names for programs."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from hpcddm.errors import UserError, require
from hpcddm.files import text_files

NAME = "classes.txt"


def find(folders: Sequence[Path]) -> Path | None:
    """Return the file in one of some folders, None without one; raises `UserError` for two."""
    there = [folder / NAME for folder in dict.fromkeys(folders) if (folder / NAME).is_file()]
    if len(there) > 1:
        raise UserError(f"{there[0]} and {there[1]} both have the names of the classes; remove one of them")
    return there[0] if there else None


def read(path: Path, folders: Sequence[str]) -> list[str]:
    """Read the names of classes, in the order of their folders.

    Args:
        path: The file. A line has a folder, a space or tab, and the name; or every line has a name, in the alphabetical
            order of the folders.
        folders: Folders of the classes, in alphabetical order.

    Raises:
        UserError: The file cannot be read, does not name every class, or names two classes alike.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "classes.txt")
        ...     _ = path.write_text("n02012849 crane, bird\\nn01440764 tench\\n")
        ...     read(path, ["n01440764", "n02012849"])
        ['tench', 'crane, bird']
    """
    lines, folder_set = read_lines(path), frozenset(folders)
    named = [(folder, name) for folder, name in (_split(line, folder_set) for line in lines) if folder is not None]
    if named and len(named) < len(lines):
        other = next(line for line in lines if _split(line, folder_set)[0] is None)
        raise UserError(f"{path}: {other!r:.80} does not begin with the folder of a class, as other lines do; mend it")
    names = _by_folder(path, named, folders) if named else _in_order(path, lines, folders)
    first: dict[str, str] = {}
    for folder, name in zip(folders, names, strict=True):
        if name in first:
            raise UserError(f"{path}: {first[name]} and {folder} are both called {name}; give every class its own name")
        first[name] = folder
    return names


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text without spaces around them, and without the empty ones at its end.

    Raises:
        UserError: The file cannot be read; the message names it.
    """
    try:
        return [line.strip() for line in text_files.decode(path.read_bytes()).rstrip().split("\n")]
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: names of classes cannot be read ({error}); mend or remove it") from None


def _split(line: str, folders: Collection[str]) -> tuple[str | None, str]:
    """Return the folder with which a line begins, of several the longest, and the name behind it; else None."""
    ends = [space.start() for space in re.finditer(r"\s", line)]
    place = next((end for end in reversed(ends) if line[:end].strip() in folders), None)
    return (None, line) if place is None else (line[:place].strip(), line[place:].strip())


def _by_folder(path: Path, named: Sequence[tuple[str, str]], folders: Sequence[str]) -> list[str]:
    """Return the names of folders that every line gives."""
    names = dict(named)
    repeated = next((folder for folder, count in Counter(folder for folder, _ in named).items() if count > 1), None)
    require(repeated is None, f"{path}: two lines begin with {repeated}; remove one of them")
    missing = next((folder for folder in folders if folder not in names), None)
    require(missing is None, f"{path}: no line begins with {missing}, which is the folder of a class; add one")
    return [names[folder] for folder in folders]


def _in_order(path: Path, lines: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Return the names in lines without folders, one for each folder."""
    advice = "write one name per line in alphabetical order of the folders, or the folder before each name"
    require(len(lines) == len(folders), f"{path}: {len(lines)} lines for {len(folders)} classes; {advice}")
    for number, (line, folder) in enumerate(zip(lines, folders, strict=True), 1):
        require(bool(line), f"{path}: line {number} is empty; {advice}")
        is_of_other = line in folders and line != folder
        require(not is_of_other, f"{path}: line {number} has {line}, but folder {number} is {folder}; {advice}")
    return list(lines)
