"""Safe display of text from files, data and schedulers: on a terminal, on a page, in a command."""

import shlex
import sys
from functools import cache

MAX_CHARACTERS = 300
"""Default maximum length of a text from outside the program."""
MAX_LINE_CHARACTERS = 10_000
"""Maximum length of a whole line or message."""


def printable(text: object, max_characters: int = MAX_CHARACTERS) -> str:
    r"""Return a text on one line with visible characters only.

    Control characters, bidirectional marks and lone surrogates become escapes such as '\x1b'. Line breaks, tabs and
    all other white space become plain spaces.

    Args:
        text: The text, or an object that is converted to text.
        max_characters: Maximum length; a longer text is shortened and ends in '...'.
    """
    shown = str(text)
    if len(shown) > max_characters:
        shown = f"{shown[: max_characters - 3]}..."
    if shown.isprintable():
        return shown
    return "".join(character if character.isprintable() else _escaped(character) for character in shown)


def ascii_only(text: object, max_characters: int = MAX_CHARACTERS) -> str:
    r"""Return a text from somebody who is not trusted as `printable` does, with letters beyond ASCII as escapes.

    A Kelvin sign looks like a K: only as '\u212a' does it tell why a name is not the one that it seems to be.
    """
    return printable(text, max_characters).encode("ascii", "backslashreplace").decode()


def quoted(value: object) -> str:
    """Return a value quoted as one word of a shell command."""
    return shlex.quote(printable(value, MAX_LINE_CHARACTERS))


def echo(*lines: object, err: bool = False) -> None:
    """Print each argument on one line, with visible characters only.

    Args:
        lines: Lines to print; without any, nothing is printed.
        err: True to print to the error stream.
    """
    shown = "".join(f"{printable(line, MAX_LINE_CHARACTERS)}\n" for line in lines)
    print(shown, end="", file=sys.stderr if err else None, flush=True)


@cache
def warn(line: str) -> None:
    """Print a line on the error stream once per process, because many settings of a sweep may cause it."""
    echo(line, err=True)


def _escaped(character: str) -> str:
    return " " if character.isspace() else character.encode("unicode_escape").decode()
