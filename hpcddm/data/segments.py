"""Segments of a JPEG, chunks of a PNG and of a WebP: a file without those that its pixels do not need.

JPEG: ITU-T T.81, annex B. PNG: https://www.w3.org/TR/png-3. WebP: RFC 9649. TIFF: TIFF 6.0, section 2.
"""

import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress

from hpcddm.errors import require

JPEG_SIGNATURE, PNG_SIGNATURE = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
SOI, EOI, SOS, APP0, APP1, APP2, APP14, APP15, COMMENT = 0xD8, 0xD9, 0xDA, 0xE0, 0xE1, 0xE2, 0xEE, 0xEF, 0xFE
JPEG_NEXT = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]")
"""Next marker behind coded pixels, in which 0xff is followed by 0 or by the number of a restart."""
JPEG_NEEDED = {APP0: (b"JFIF\0",), APP2: (b"ICC_PROFILE\0",), APP14: (b"Adobe",)}
"""Beginnings of the applications' segments that are kept."""
JPEG_ORIENTATION = {APP0: (b"JFIF\0",), APP1: (b"Exif\0", b"http://ns.adobe.com/xap/"), APP14: (b"Adobe",)}
"""The same of a JPEG that is only read, where a profile is not needed but the orientation is."""
JFIF_BYTES = 18
"""Bytes of a JFIF segment without a thumbnail's pixels."""
PNG_NEEDED = tuple(b"tRNS gAMA cHRM sRGB iCCP cICP mDCV cLLI sBIT bKGD pHYs acTL fcTL fdAT".split())
"""Beginnings of the chunks that are kept besides the critical ones."""
PNG_ORIENTATION = (b"tRNS", b"eXIf", b"iTXtXML:com.adobe.xmp\0\0", b"tEXtRaw profile type exif\0")
"""The same of a PNG that is only read, where the orientation is needed; it may be in texts that are not compressed."""
TIFF_XMP, TIFF_PRIVATE = 700, 32768
"""Tags that do not describe a TIFF's pixels: XMP's, and all from a number on, with EXIF, IPTC and profiles."""
WEBP_NEEDED = frozenset((b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF", b"ICCP"))
WEBP_XMP, WEBP_EXIF = 0x04, 0x08
"""Bits of VP8X that announce XMP and EXIF in the file."""


def remove_metadata(content: bytes) -> bytes | None:
    """Return a JPEG, PNG or TIFF with little beside its pixels but what turns them; None for any other file."""
    with suppress(struct.error, IndexError, ValueError):
        if content.startswith(JPEG_SIGNATURE):
            return strip_jpeg(content, kept=JPEG_ORIENTATION)
        if content.startswith(PNG_SIGNATURE):
            return strip_png(content, kept=PNG_ORIENTATION)
        if content.startswith((b"II*\0", b"MM\0*")):
            return _tiff(content)
    return None


def strip_jpeg(content: bytes, exif: bytes = b"", kept: Mapping[int, tuple[bytes, ...]] = JPEG_NEEDED) -> bytes:
    """Return a JPEG with the kept segments, without data after the first picture, and with `exif` in front.

    Raises `ValueError` where a segment does not follow another one, `struct.error` or `IndexError` where one is cut.
    """
    return b"".join(_jpeg(content, exif, kept))


def strip_png(content: bytes, exif: bytes = b"", kept: tuple[bytes, ...] = PNG_NEEDED) -> bytes:
    """Return a PNG with the kept chunks, and with `exif` in front. Raises `struct.error` or `IndexError`."""
    return b"".join(_png(content, exif, kept))


def _jpeg(content: bytes, exif: bytes, kept: Mapping[int, tuple[bytes, ...]]) -> Iterator[bytes]:
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
        if _is_needed(marker, content[place + 4 : end], kept):
            yield _without_thumbnail(content[place:end]) if marker == APP0 else content[place:end]
        place = end
    require(place >= len(content), f"no marker at byte {place}", ValueError)


def _is_needed(marker: int, body: bytes, kept: Mapping[int, tuple[bytes, ...]]) -> bool:
    """Tell if a segment is kept: no comment, and of the applications' only those that begin so."""
    return body.startswith(kept.get(marker, ())) if APP0 <= marker <= APP15 else marker != COMMENT


def _without_thumbnail(jfif: bytes) -> bytes:
    """Return a JFIF segment of a thumbnail of no pixels; it has version and density before it (ITU-T T.871, 10.1)."""
    return jfif if len(jfif) < JFIF_BYTES else struct.pack(">BBH", 0xFF, APP0, JFIF_BYTES - 2) + jfif[4:16] + bytes(2)


def _png(content: bytes, exif: bytes, kept: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield the chunks of a PNG that are kept."""
    yield PNG_SIGNATURE
    place, kind = len(PNG_SIGNATURE), b""
    while kind != b"IEND":
        size, kind = struct.unpack_from(">I4s", content, place)
        is_critical = not kind[0] & 0x20
        if is_critical or content.startswith(kept, place + 4):
            yield content[place : place + 12 + size]
        if kind == b"IHDR" and exif:
            yield struct.pack(">I", len(exif)) + b"eXIf" + exif + struct.pack(">I", zlib.crc32(b"eXIf" + exif))
        place += 12 + size


def strip_webp(content: bytes, exif: bytes) -> bytes:
    """Return a WebP with the chunks that are kept, and a header that says which they are."""
    chunks, place, end = [], 12, 8 + struct.unpack_from("<I", content, 4)[0]
    while place + 8 <= min(end, len(content)):
        kind, size = struct.unpack_from("<4sI", content, place)
        body = content[place + 8 : place + 8 + size]
        if kind == b"VP8X":
            body = bytes([body[0] & ~(WEBP_XMP | WEBP_EXIF) | (WEBP_EXIF if exif else 0)]) + body[1:]
        if kind in WEBP_NEEDED:
            chunks.append(_riff(kind, body))
        place += 8 + size + size % 2
    kept = b"WEBP" + b"".join(chunks) + (_riff(b"EXIF", exif) if exif else b"")
    return b"RIFF" + struct.pack("<I", len(kept)) + kept


def _tiff(content: bytes) -> bytes:
    """Return a TIFF whose first directory has only entries about pixels; everything else stays."""
    order = "<" if content.startswith(b"II") else ">"
    (start,) = struct.unpack_from(f"{order}I", content, 4)
    (count,) = struct.unpack_from(f"{order}H", content, start)
    end = start + 2 + 12 * count
    entries = [content[place : place + 12] for place in range(start + 2, end, 12)]
    tags = [struct.unpack_from(f"{order}H", entry)[0] for entry in entries]
    kept = [entry for tag, entry in zip(tags, entries, strict=True) if tag != TIFF_XMP and tag < TIFF_PRIVATE]
    # The directory is as long as before, so that nothing moves: behind its entries comes the place of the next one.
    directory = struct.pack(f"{order}H", len(kept)) + b"".join(kept) + content[end : end + 4]
    return content[:start] + directory.ljust(end + 4 - start, b"\0") + content[end + 4 :]


def _riff(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
