"""Pictures without EXIF: a file loses all that its pixels do not need, and they are not encoded anew.

That is EXIF with places and serial numbers, XMP and IPTC, which may repeat it, comments, previews, and whatever follows
the picture. A picture that EXIF turns keeps an EXIF of this one tag, and comes out upright as before.

JPEG: ITU-T T.81, annex B. PNG: https://www.w3.org/TR/png-3. WebP: RFC 9649. EXIF: TIFF 6.0, section 2.
"""

import re
import struct
import zlib
from collections.abc import Iterator

from hpcddm.data.pictures import PNG_SIGNATURE, PictureError, open_picture, orientation_of

SOI, EOI, SOS, APP0, APP1, APP2, APP14, APP15, COMMENT = 0xD8, 0xD9, 0xDA, 0xE0, 0xE1, 0xE2, 0xEE, 0xEF, 0xFE
JPEG_NEXT = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]")
"""Next marker behind coded pixels, in which 0xff is followed by 0 or by the number of a restart."""
JPEG_KEPT = {APP0: (b"JFIF\0",), APP2: (b"ICC_PROFILE\0",), APP14: (b"Adobe",)}
"""Beginnings of the applications' segments that are kept."""
JFIF_BYTES = 18
"""Bytes of a JFIF segment without a thumbnail's pixels."""
PNG_KEPT = frozenset(b"tRNS gAMA cHRM sRGB iCCP cICP mDCV cLLI sBIT bKGD pHYs acTL fcTL fdAT".split())
"""Chunks that are kept beside the critical ones."""
WEBP_KEPT = frozenset((b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF", b"ICCP"))
WEBP_XMP, WEBP_EXIF = 0x04, 0x08
"""Bits of VP8X that say what else is in the file."""
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
            return b"".join(_jpeg(content, exif))
        if image.format == "PNG":
            return b"".join(_png(content, exif))
        if image.format == "WEBP":
            return _webp(content, exif)
    except (struct.error, IndexError):
        raise PictureError(f"{image.format} damaged: it ends within a segment") from None
    if image.format not in NEVER or b"XMP DataXMP" in content:
        raise PictureError(f"{image.format}: its EXIF cannot be dropped without encoding it anew")
    return content


def _turned(orientation: int) -> bytes:
    """Return the EXIF that says the orientation and nothing else; none for a picture that is upright."""
    if not 2 <= orientation <= 8:
        return b""
    return struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def _jpeg(content: bytes, exif: bytes) -> Iterator[bytes]:
    """Yield the segments of a JPEG that are kept; what follows the first picture is not."""
    yield content[:2]
    place, is_pending = 2, bool(exif)
    while content[place : place + 1] == b"\xff":
        marker = content[place + 1]
        if marker == EOI:
            yield content[place : place + 2]
            return
        if marker == 0xFF:  # A fill byte.
            place += 1
            continue
        end = place + 2 + struct.unpack_from(">H", content, place + 2)[0]
        if is_pending and marker != APP0:
            body = b"Exif\0\0" + exif
            yield struct.pack(">BBH", 0xFF, APP1, len(body) + 2) + body
            is_pending = False
        if marker == SOS:
            found = JPEG_NEXT.search(content, end)
            end = found.start() if found else len(content)
        if _is_needed(marker, content[place + 4 : end]):
            yield _without_thumbnail(content[place:end]) if marker == APP0 else content[place:end]
        place = end
    if place < len(content):
        raise PictureError(f"JPEG damaged: no marker at byte {place}")


def _is_needed(marker: int, body: bytes) -> bool:
    """Tell if a segment says how the pixels are read: no comment, and no application's but JFIF, profile and Adobe."""
    if APP0 <= marker <= APP15:
        return body.startswith(JPEG_KEPT.get(marker, ()))
    return marker != COMMENT


def _without_thumbnail(jfif: bytes) -> bytes:
    """Return a JFIF segment of a thumbnail of no pixels; it has version and density before it (ITU-T T.871, 10.1)."""
    return jfif if len(jfif) < JFIF_BYTES else struct.pack(">BBH", 0xFF, APP0, JFIF_BYTES - 2) + jfif[4:16] + bytes(2)


def _png(content: bytes, exif: bytes) -> Iterator[bytes]:
    """Yield the chunks of a PNG that are kept."""
    yield PNG_SIGNATURE
    place, kind = len(PNG_SIGNATURE), b""
    while kind != b"IEND":
        size, kind = struct.unpack_from(">I4s", content, place)
        is_critical = not kind[0] & 0x20
        if is_critical or kind in PNG_KEPT:
            yield content[place : place + 12 + size]
        if kind == b"IHDR" and exif:
            yield struct.pack(">I", len(exif)) + b"eXIf" + exif + struct.pack(">I", zlib.crc32(b"eXIf" + exif))
        place += 12 + size


def _webp(content: bytes, exif: bytes) -> bytes:
    """Return a WebP with the chunks that are kept, and a header that says which they are."""
    chunks, place, end = [], 12, 8 + struct.unpack_from("<I", content, 4)[0]
    while place + 8 <= min(end, len(content)):
        kind, size = struct.unpack_from("<4sI", content, place)
        body = content[place + 8 : place + 8 + size]
        if kind == b"VP8X":
            body = bytes([body[0] & ~(WEBP_XMP | WEBP_EXIF) | (WEBP_EXIF if exif else 0)]) + body[1:]
        if kind in WEBP_KEPT:
            chunks.append(_riff(kind, body))
        place += 8 + size + size % 2
    kept = b"WEBP" + b"".join(chunks) + (_riff(b"EXIF", exif) if exif else b"")
    return b"RIFF" + struct.pack("<I", len(kept)) + kept


def _riff(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
