"""Names of the classes: read from a file, checked, looked up as a user types them, and listed on one line."""

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hpcddm.errors import require
from hpcddm.errors.printing import printable
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import MIB, Unreadable

MAX_BYTES = 4 * MIB
"""Largest size of a file of names; the experiment of a run, which holds them, may have four times as much."""
LISTED_CLASSES, LISTED_CHARACTERS = 20, 120
"""Most classes that an error lists; most characters of a list on one line, and of each name three times fewer."""
CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]")
NEAREST = 5
"""Most names that an error suggests."""


def read_names(path: Path) -> list[str]:
    """Read a file with the name of one class per line, in the order of the classes, or with a JSON list of them.

    Args:
        path: File in UTF-8. It holds JSON if its name ends in `.json` or its text begins with `[`.

    Raises:
        ValueError: The file cannot be read, or `checked_names` refuses its names; the message begins with the path.
    """
    try:
        text = checked_reads.read_bytes(path, MAX_BYTES, follows_links=True).decode("utf-8-sig")
        is_json = path.suffix.lower() == ".json" or text.lstrip().startswith("[")
        return checked_names(_json_names(text) if is_json else re.split("\r\n?|\n", text.rstrip()))
    except FileNotFoundError:
        reason = "is missing"
    except Unreadable as error:
        reason = error.reason
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 (byte {error.start}); save it as UTF-8"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"{path}: {reason}")


def _json_names(text: str) -> list[str]:
    try:
        names: list[str] = checked_reads.parse_json(text.encode(), list[str])
    except ValueError as error:
        raise ValueError(f"holds no JSON list of names ({error})") from None
    return names


def checked_names(names: Sequence[str]) -> list[str]:
    """Return names without the white space around them.

    Raises:
        ValueError: A name is empty, occurs twice or contains a line break; the message gives its class.
    """
    stripped = [name.strip() for name in names]
    for number, name in enumerate(stripped):
        require(name != "", f"the name of class {number} is empty", ValueError)
        if CONTROL.search(name):
            raise ValueError(f"the name of class {number} contains a line break or another control character")
    require_distinct(stripped)
    return stripped


def require_distinct(names: Sequence[str]) -> None:
    """Raise `ValueError` if two classes have the same name; the message gives the name and both classes."""
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        first, second = [number for number, other in enumerate(names) if other == name][:2]
        raise ValueError(f"classes {first} and {second} are both called '{printable(name)}'; rename one")


def are_numbers(names: Sequence[str]) -> bool:
    """Return True if classes are called by their numbers, because nothing names them."""
    return list(names) == [str(number) for number in range(len(names))]


def require_places(names: Sequence[str]) -> None:
    """Raise `ValueError` if a class is called by a number that is not its own, so that a number may mean either.

    Examples:
        >>> require_places(["Bag", "Ankle boot"]), require_places(["00", "01"])
        (None, None)
    """
    number = _renumbered(names)
    if number is not None:
        advice = "give the classes names of another kind in data.class_names"
        raise ValueError(
            f"class {number} is called '{names[number]}', and numbers of classes may mean either; {advice}"
        )


def _is_other_place(name: str, number: int, names: Sequence[str]) -> bool:
    return name.isdecimal() and len(name) < 10 and number != int(name) < len(names)


def _renumbered(names: Sequence[str]) -> int | None:
    """Return the first class whose name is the number of another place."""
    return next((number for number, name in enumerate(names) if _is_other_place(name, number, names)), None)


def class_number(text: str, names: Sequence[str]) -> int:
    """Return the number of a class: of the one with exactly this name, else this number, else this name in any case.

    Where classes are called by numbers that are not their own, only names count.

    Args:
        text: Name or number of the class, as a user types it.
        names: Names of all classes, by class number.

    Raises:
        ValueError: No class has this name or number, or several names differ in case alone; the message gives the
            nearest names.

    Examples:
        >>> class_number("ankle boot", ["Bag", "Ankle boot"]), class_number("0", ["Bag", "Ankle boot"])
        (1, 0)
    """
    if text in names:
        return names.index(text)
    is_place = _renumbered(names) is None
    if is_place and text.isdecimal() and len(text) < 10 and int(text) < len(names):
        return int(text)
    folded = [_folded(name) for name in names]
    same = [number for number, name in enumerate(folded) if name == _folded(text)]
    if len(same) > 1:
        raise ValueError(f"several classes differ in case alone: {', '.join(names[number] for number in same)}")
    if same:
        return same[0]
    numbers = f"0 to {len(names) - 1}"
    require(len(names) > 0, "the images have no classes", ValueError)
    require(not are_numbers(names), f"valid classes are {numbers}", ValueError)
    similar = difflib.get_close_matches(_folded(text), folded, NEAREST, 0.5)
    holding = [name for name in folded if text.strip() and _folded(text) in name]
    near = [names[folded.index(name)] for name in dict.fromkeys([*similar, *holding])][:NEAREST]
    nearest = f"unknown; nearest: {', '.join(near)}" if near else "unknown"
    is_short = len(names) <= LISTED_CLASSES
    listed = f"{len(names)} classes: {', '.join(names)}" if is_short else describe_names(names)
    raise ValueError(f"{nearest}; {listed}{f', or {numbers}' * is_place}")


def _folded(name: str) -> str:
    """Return a name without its case; some systems compose an accent and its letter, others do not."""
    return unicodedata.normalize("NFC", name.strip()).casefold()


def describe_names(names: Sequence[str]) -> str:
    """Return the number and the names of classes on one line, only the first and the last of many.

    Examples:
        >>> describe_names(["Bag", "Ankle boot"])
        '2 classes: Bag, Ankle boot'
        >>> describe_names([f"bird {number}" for number in range(1000)])
        '1,000 classes: bird 0, bird 1, bird 2, ..., bird 999'
    """
    shown = [printable(name, LISTED_CHARACTERS // 3) for name in names]
    if len(", ".join(shown)) > LISTED_CHARACTERS and len(shown) > 4:
        shown = [*shown[:3], "...", shown[-1]]
    return f"{len(names):,} class{'es' * (len(names) != 1)}: {', '.join(shown)}"
