"""Files that operating systems leave in folders of others."""

import re

JUNK = re.compile(
    r"(^|/)(\._|\.DS_Store$|Thumbs\.db$|ehthumbs\.db$|desktop\.ini$|@eaDir(/|$)|__MACOSX(/|$)|\.AppleDouble(/|$))",
    re.IGNORECASE,
)
"""Names of files that macOS, Windows and Synology add to folders."""


def is_junk(name: str) -> bool:
    """Tell by its name, or path, if an operating system has left a file, or a folder, behind."""
    return JUNK.search(name) is not None
