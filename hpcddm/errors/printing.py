"""Text from files, data and schedulers as it may be shown: on a terminal, on a page, in advice."""

import shlex
import sys
from functools import cache

MOST_LETTERS = 300
"""Usual length of a text that others wrote."""
MOST_OF_A_LINE = 10_000
"""Length of a whole line or message."""


def printable(text: object, most: int = MOST_LETTERS) -> str:
    r"""Return a text on one line, of visible characters alone, shortened to `most` of them.

    Control characters, also those of terminals, bidirectional marks and lone surrogates become escapes such as '\x1b';
    a line break, a tab and every other space become a plain one.
    """
    shown = str(text)
    if len(shown) > most:
        shown = f"{shown[: most - 3]}..."
    if shown.isprintable():
        return shown
    return "".join(character if character.isprintable() else _escaped(character) for character in shown)


def quoted(value: object) -> str:
    """Return a value as one word of a command that a user pastes into a shell."""
    return shlex.quote(printable(value, MOST_OF_A_LINE))


def echo(*lines: object, err: bool = False) -> None:
    """Print lines of visible characters alone, each on one line."""
    shown = (printable(line, MOST_OF_A_LINE) for line in lines or ("",))
    print(*shown, sep="\n", file=sys.stderr if err else None, flush=True)


@cache
def warn(line: str) -> None:
    """Print a line on the error stream, once in a process: many settings of a sweep may give cause to it."""
    echo(line, err=True)


def _escaped(character: str) -> str:
    return " " if character.isspace() else character.encode("unicode_escape").decode()
