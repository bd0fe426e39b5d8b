"""Texts that people wrote with any editor: in UTF-8 with or without its mark, or in UTF-16, with any line ends."""

import codecs
import re
from pathlib import Path
from typing import TextIO

BYTE_ORDER_MARK = "\ufeff"
"""Character with which some editors begin a file; Unicode gives it no meaning inside of one."""
LINE_END = re.compile("\r\n?")
BLANK = re.compile(r"[\s\0\u00ad\u200b-\u200f\u2060\u2800\u3164\ufeff]*")
"""White space, and characters that show nothing."""
EMPTY_CAPTION = "its caption is empty; write one, or remove the sample"
"""Reason why a sample is broken whose caption `is_blank`."""
ENCODINGS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by the bytes of their marks; the mark of UTF-32 begins with that of UTF-16."""
HEAD_BYTES = 4096
"""Bytes at the beginning of a file that show its encoding."""


def normalise(text: str) -> str:
    """Return a text without marks of an encoding, with line ends of Unix, and none at its end."""
    if BYTE_ORDER_MARK in text:
        text = text.replace(BYTE_ORDER_MARK, "")
    if "\r" in text:
        text = LINE_END.sub("\n", text)
    return text.rstrip("\n")


def is_blank(text: str) -> bool:
    """Tell if a text has nothing that can be seen; as a caption, it would train the unconditional network."""
    return BLANK.fullmatch(text) is not None


def decode(content: bytes) -> str:
    """Decode a file, and clean its text; raises ValueError for one that is not UTF-8 and has no other mark."""
    return normalise(content.decode(_encoding(content)))


def open_text(path: Path, newline: str | None = None, errors: str = "surrogateescape") -> TextIO:
    """Open a file for reading, behind its mark.

    newline, errors: as those of `open`; without them every line ends in a line feed, and bytes that are not UTF-8
    become surrogates. Raises `OSError`, and ValueError for a file that is not UTF-8 and has no other mark.
    """
    with open(path, "rb") as file:
        encoding = _encoding(file.read(HEAD_BYTES))
    return open(path, newline=newline, encoding=encoding, errors=errors)


def _encoding(head: bytes) -> str:
    encoding = next((name for mark, name in ENCODINGS.items() if head.startswith(mark)), "utf-8")
    if b"\0" in head and encoding.startswith("utf-8"):
        raise ValueError("zero bytes, as in UTF-16 without its mark; save it as UTF-8")
    return encoding
