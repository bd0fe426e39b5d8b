"""JSON from other sites: parsed by one function that takes nothing but plain values of bounded size."""

import json
import re
from collections.abc import Callable
from typing import TypeVar

from hpcddm.errors import require
from hpcddm.files import checked_reads

T = TypeVar("T")
MAX_DIGITS = 20
"""Most digits of a number."""
PRINTABLE = re.compile(r"[\x20-\x7e]*")
"""Texts that can be shown as they are, on any terminal."""
TEXT_LENGTH = 4096
"""Most characters of a text."""
MAX_ITEMS = 250_000
"""Most keys and values; a contract of a thousand experts has less than half of them."""


def is_ascii(text: str) -> bool:
    """Return True for a text of printable ASCII."""
    return PRINTABLE.fullmatch(text) is not None


def parse(content: bytes, kind: type[T], is_harmless: Callable[[str], bool] = is_ascii) -> T:
    """Parse JSON that another site wrote.

    Args:
        content: The bytes; the caller has bounded their number.
        kind: Dataclass of the content; unknown keys are refused.
        is_harmless: Function that returns True for a text that any terminal can show as it is.

    Returns:
        An instance of the dataclass.

    Raises:
        ValueError: A key occurs twice; a number is not finite or has more than 20 digits; a text has more than
            4,096 characters or is not harmless; the content is too deep, has too many values, or does not fit the
            dataclass.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Count:
        ...     images: int
        >>> parse(b'{"images": 3}', Count)
        Count(images=3)
    """
    # Texts first: an error of a type may name a key.
    _require_plain(content, is_harmless)
    made: T = checked_reads.parse_json(content, kind)
    return made


def _require_plain(content: bytes, is_harmless: Callable[[str], bool]) -> None:
    try:
        level = [json.loads(content, parse_int=_number, parse_float=_number)]
    except RecursionError:
        raise ValueError(checked_reads.TOO_DEEP) from None
    count = 0
    while level:
        item, count = level.pop(), count + 1
        if count > MAX_ITEMS:
            # Each of them can be an error of its type, which takes thousands of times the memory of its text.
            raise ValueError(f"holds more than {MAX_ITEMS:,} keys and values")
        if isinstance(item, dict):
            level += [*item, *item.values()]
        elif isinstance(item, list):
            level += item
        elif isinstance(item, str) and (len(item) > TEXT_LENGTH or not is_harmless(item)):
            kind = "printable ASCII" if is_harmless is is_ascii else "printable"
            raise ValueError(f"holds a text that is too long or not {kind}, {item[:40]!a}")


def _number(text: str) -> None:
    # The shortest text of a float may have a zero before the point and twenty digits after it.
    digits = sum(map(str.isdigit, text.removeprefix("-").removeprefix("0.")))
    require(digits <= MAX_DIGITS, f"holds a number of {digits} digits, {text[:MAX_DIGITS]}...", ValueError)
