"""Pictures without EXIF: a file loses everything that its pixels do not need, without encoding them again.

It loses EXIF with places and serial numbers, XMP and IPTC, which may repeat them, comments, previews, and any bytes
after the picture. A picture that EXIF rotates keeps an EXIF of this one tag, and is shown upright as before.

EXIF: TIFF 6.0, section 2.
"""

import struct
from collections.abc import Callable

from hpcddm.data.image_decoding import ImageError, open_image, orientation_of
from hpcddm.data.segments import strip_jpeg, strip_png, strip_webp

Strip = Callable[[bytes, bytes], bytes]
STRIPPERS: dict[str, Strip] = {"JPEG": strip_jpeg, "MPO": strip_jpeg, "PNG": strip_png, "WEBP": strip_webp}
NEVER = ("BMP", "GIF")
"""Formats without EXIF; an XMP in a GIF is looked for."""


def remove_exif(content: bytes) -> bytes:
    """Return a picture's file without what its pixels do not need; it decodes to the same pixels, upright as before.

    JPEG, PNG and WebP; BMP and GIF have no EXIF and come back as they are. Raises `ImageError` for a file that is
    damaged, or of a format whose EXIF is not a piece of its own.
    """
    image = open_image(content)
    exif = _turned(orientation_of(image))
    try:
        if strip := STRIPPERS.get(str(image.format)):
            return strip(content, exif)
    except (struct.error, IndexError):
        raise ImageError(f"{image.format} damaged: it ends within a segment") from None
    except ValueError as error:
        raise ImageError(f"{image.format} damaged: {error}") from None
    if image.format not in NEVER or b"XMP DataXMP" in content:
        raise ImageError(f"{image.format}: its EXIF cannot be dropped without encoding it again")
    return content


def _turned(orientation: int) -> bytes:
    """Return the EXIF that says the orientation and nothing else; none for a picture that is upright."""
    return b"" if orientation == 1 else struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)
