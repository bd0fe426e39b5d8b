"""Words of captions, by the same rules for making a vocabulary and for finding its concepts."""

import re
import unicodedata

WORD = r"[^\W_]+(?:'[^\W_]+)*"
TOKEN = re.compile(rf"{WORD}|[^\w\s-]|(?<!\w)-|-(?!\w)")
"""A word, or a mark that ends a segment; a hyphen inside a word only parts it, as a space does, and so does _."""
POSSESSIVE = re.compile(r"(?<=\w)'s?(?!\w)")
APOSTROPHES = str.maketrans("\u2018\u2019\u02bc", "'''")


def tokens(caption: str) -> list[str]:
    """Split a caption into words in lower case, and marks of one character between its segments.

    "A dog's fire-engine, red" is a, dog, fire, engine, the mark ',', and red. Characters that are not Unicode text,
    such as bytes that were not UTF-8, are marks.
    """
    text = caption.lower()
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate(APOSTROPHES)
    if "'" in text:
        text = POSSESSIVE.sub("", text)
    return TOKEN.findall(text)


def is_word(token: str) -> bool:
    """Tell if a token is a word, and no mark."""
    return token[0].isalnum()


def segments(caption: str) -> list[tuple[str, ...]]:
    """Split a caption into its segments: words with nothing but spaces and hyphens between them."""
    parts: list[list[str]] = [[]]
    for token in tokens(caption):
        if is_word(token):
            parts[-1].append(token)
        elif parts[-1]:
            parts.append([])
    return [tuple(part) for part in parts if part]


def name_of(text: str) -> str:
    """Return the words of a text with one space between them; raises ValueError unless they form one segment."""
    parts = segments(text)
    if len(parts) != 1:
        raise ValueError(f"{text.strip()!r:.60} is not a word, nor words separated by spaces")
    return " ".join(parts[0])
