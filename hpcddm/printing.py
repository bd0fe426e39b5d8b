"""Text from files, data and schedulers as it may be shown: on a terminal, on a page, in advice."""

MOST_LETTERS = 300
"""Usual length of a text that others wrote."""


def printable(text: object, most: int = MOST_LETTERS) -> str:
    r"""Return a text on one line, of visible characters alone, shortened to `most` of them.

    Control characters, also those of terminals, bidirectional marks and lone surrogates become escapes such as '\x1b';
    other spaces become a plain one.
    """
    shown = str(text)
    if len(shown) > most:
        shown = f"{shown[: max(most - 3, 0)]}..."
    if shown.isprintable():
        return shown
    return "".join(character if character.isprintable() else _escaped(character) for character in shown)


def _escaped(character: str) -> str:
    if character.isspace() and ord(character) > 0x7F and character not in "\x85\u2028\u2029":
        return " "
    return character.encode("unicode_escape").decode()
