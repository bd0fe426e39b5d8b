"""Pictures without EXIF: a file loses all that its pixels do not need, and they are not encoded anew.

That is EXIF with places and serial numbers, XMP and IPTC, which may repeat it, comments, previews, and whatever follows
the picture. A picture that EXIF turns keeps an EXIF of this one tag, and comes out upright as before.

EXIF: TIFF 6.0, section 2.
"""

import struct

from hpcddm.data import segments
from hpcddm.data.pictures import PictureError, open_picture, orientation_of

NEVER = ("BMP", "GIF")
"""Formats without EXIF; an XMP in a GIF is looked for."""


def without_exif(content: bytes) -> bytes:
    """Return a picture's file without what its pixels do not need; it decodes to the same pixels, upright as before.

    JPEG, PNG and WebP; BMP and GIF have no EXIF and come back as they are. Raises `PictureError` for a file that is
    damaged, or of a format whose EXIF is not a piece of its own.
    """
    image = open_picture(content)
    exif = _turned(orientation_of(image))
    try:
        if image.format in ("JPEG", "MPO"):
            return segments.jpeg(content, exif)
        if image.format == "PNG":
            return segments.png(content, exif)
        if image.format == "WEBP":
            return segments.webp(content, exif)
    except (struct.error, IndexError):
        raise PictureError(f"{image.format} damaged: it ends within a segment") from None
    except ValueError as error:
        raise PictureError(f"{image.format} damaged: {error}") from None
    if image.format not in NEVER or b"XMP DataXMP" in content:
        raise PictureError(f"{image.format}: its EXIF cannot be dropped without encoding it anew")
    return content


def _turned(orientation: int) -> bytes:
    """Return the EXIF that says the orientation and nothing else; none for a picture that is upright."""
    if orientation == 1:
        return b""
    return struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)
