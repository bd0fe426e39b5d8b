"""Kinds of files by their content and name: pictures by their first bytes, and what operating systems leave behind."""

import re

HEAD_BYTES = 512
"""Number of leading bytes that identify a picture."""
READABLE = re.compile(
    rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP|II[*+]\0|MM\0[*+]"
    # A bitmap's header has a size of its own behind the file's.
    rb"|BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0"
    rb"|\0\0\0.ftypavi[fs]|\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51",
    re.DOTALL,
)
"""Beginnings of the formats of `image_decoding.FORMATS`."""
RAW = re.compile(
    rb"II\*\0(.{4}CR|\x08\0\0\0..\xfe\0\x04\0\x01\0\0\0\x01\0\0\0)"
    rb"|MM\0\*\0\0\0\x08..\0\xfe\0\x04\0\0\0\x01\0\0\0\x01"
    rb"|FUJIFILMCCD-RAW|II(RO|RS|U\0)|\0MRM",
    re.DOTALL,
)
"""Beginnings of raw photographs; as TIFF files, most begin with a thumbnail (NewSubfileType 1: TIFF 6.0, section 8)."""
UNREADABLE = {
    "HEIC": re.compile(rb"\0\0\0.ftyp(hei[cxms]|hev[cxms]|mif[12]|msf1)", re.DOTALL),
    "JPEG XL": re.compile(rb"\0\0\0\x0cJXL \r\n\x87\n|\xff\x0a"),
    "JPEG XR": re.compile(rb"II\xbc\x01"),
    "Photoshop": re.compile(rb"8BPS\0[\x01\x02]"),
    "OpenEXR": re.compile(rb"v/1\x01"),
    "Radiance HDR": re.compile(rb"#\?R(ADIANC|GB)E\n"),
    "QOI": re.compile(rb"qoif"),
    "DDS": re.compile(rb"DDS \x7c\0\0\0"),
    "ICO": re.compile(rb"\0\0\x01\0[^\0]\0"),
    "PNM": re.compile(rb"P[1-6]\s+(#[^\n]*\n)*\d+\s+\d+\s"),
    "raw form": RAW,
    "SVG": re.compile(
        rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*|<!DOCTYPE svg[^>]*>\s*)*<svg[\s>]", re.DOTALL
    ),
}
"""Beginnings of pictures of other formats."""


def is_readable_image(head: bytes) -> bool:
    """Tell by its first bytes if a file is a picture of a format that is read."""
    return READABLE.match(head) is not None and RAW.match(head) is None


def unreadable_format(head: bytes) -> str | None:
    """Return the format of a picture that is not read, by its first bytes; None for any other file."""
    return next((name for name, beginning in UNREADABLE.items() if beginning.match(head)), None)
