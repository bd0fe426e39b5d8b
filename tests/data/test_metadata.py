"""Sound pixels are read whatever metadata stand beside them, and turned as they say where they can be understood."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from hpcddm.data.exif import remove_exif
from hpcddm.data.image_decoding import orientation_of, read_image, to_pixels
from tests.data.oddities import encoded
from tests.data.test_image_decoding import behind_header, chunk

PICTURE = np.asarray(Image.open(io.BytesIO(encoded(1))))
PNG = encoded(1)
LONG = 1_500_000
TURNED = (0x112, 3, 1, struct.pack("<H", 6))
ODD_TAGS = [
    (0x103, 2, 3, b"ab\0"),
    (0x103, 8, 1, struct.pack("<h", -3)),
    (0x103, 4, 1, struct.pack("<I", 0xFFFFFFFF)),
    (0x8769, 4, 1, struct.pack("<I", 0xFFFFFFF0)),
    (0x8825, 2, 4, b"xyz\0"),
    (0x9286, 77, 0xFFFFFFFF, b"\xff\xff\xff\xff"),
]


def directory(*entries, start=8, order="<"):
    """A TIFF directory: tag, type, count, four bytes of value."""
    rows = b"".join(struct.pack(f"{order}HHI", *row[:3]) + row[3].ljust(4, b"\0") for row in entries)
    return struct.pack(f"{order}H", len(entries)) + rows + struct.pack(f"{order}I", 0)


def exif(*entries):
    return b"Exif\0\0II*\0" + struct.pack("<I", 8) + directory(*entries)


def pixels(content):
    return np.asarray(to_pixels(read_image(content), 3)).astype(int)


def png_with(kind, body):
    return behind_header(PNG, kind, body)


def texts(is_zipped):
    info = PngImagePlugin.PngInfo()
    info.add_itxt("prompt", "x" * LONG, zip=is_zipped)
    info.add_text("workflow", "x" * LONG, zip=is_zipped)
    return encoded(1, pnginfo=info)


BESIDE_PIXELS = {
    "compressed texts": texts(True),
    "plain texts": texts(False),
    "many plain texts": PNG[:33] + chunk(b"tEXt", b"k\0" + b"x" * LONG) * 50 + PNG[33:],
    "a text at the end": PNG[:-12] + chunk(b"zTXt", b"k\0\0" + zlib.compress(b"x" * LONG)) + PNG[-12:],
    "a text of no known method": png_with(b"zTXt", b"k\0\7abc"),
    "a profile of megabytes": png_with(b"iCCP", b"k\0\0" + zlib.compress(b"x" * LONG)),
    "a profile of no known method": png_with(b"iCCP", b"k\0\7abc"),
    "a cut profile": png_with(b"iCCP", b"k"),
    "a cut resolution": png_with(b"pHYs", b"\0"),
    "a cut gamma": png_with(b"gAMA", b"\0"),
    "EXIF that is none": png_with(b"eXIf", b"none"),
    "a text with a wrong checksum": PNG[:33] + chunk(b"tEXt", b"k\0v")[:-1] + b"\0" + PNG[33:],
    "an unknown chunk": png_with(b"caBX", b"\0" * 100),
}


@pytest.mark.parametrize("content", BESIDE_PIXELS.values(), ids=BESIDE_PIXELS)
def test_chunks_beside_the_pixels_refuse_no_png(content):
    assert (pixels(content) == PICTURE).all() and (pixels(remove_exif(content)) == PICTURE).all()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("entry", ODD_TAGS)
def test_odd_tags_refuse_no_picture_and_do_not_keep_it_from_being_turned(kind, entry):
    options = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}.get(kind, {})
    plain, turned = (encoded(1, kind, exif=exif(*tags), **options) for tags in ([entry], [entry, TURNED]))
    assert (pixels(plain) == pixels(encoded(1, kind, **options))).all()
    assert orientation_of(read_image(turned)) == 6
    assert (pixels(turned) == np.rot90(pixels(plain), -1)).all()
    assert (pixels(remove_exif(turned)) == pixels(turned)).all()


def test_a_text_of_megabytes_does_not_keep_a_png_from_being_turned():
    info = PngImagePlugin.PngInfo()
    info.add_text("workflow", "x" * LONG, zip=True)
    assert (pixels(encoded(1, pnginfo=info, exif=exif(TURNED))) == np.rot90(PICTURE, -1)).all()
    info.add_itxt("XML:com.adobe.xmp", '<x tiff:Orientation="3"/>')
    assert (pixels(encoded(1, pnginfo=info)) == np.rot90(PICTURE, 2)).all()


SEGMENTS = [
    (0xE2, b"MPF\0II*\0" + bytes(20)),
    (0xE2, b"MPF\0"),
    (0xE2, b"ICC_PROFILE\0\7\3cut"),
    (0xE2, b"ICC_PROFILE\0"),
    (0xED, b"Photoshop 3.0\x008BIM\4\4\0\0\xff\xff\xff\xff"),
    (0xED, b"Photoshop 3.0\x008BIM\x03\xed\0\0\0\0\0\2\0\0"),
    (0xFE, b"\xff\xfe comment"),
    (0xE1, b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="9">\xff'),
    (0xE1, b"Exif\0\0"),
    (0xEB, b"JP\0\1" + bytes(60000)),
]
ENTRIES = [(700, 2, 2, b"x\0"), (700, 3, 1, b"\1\0"), (0x8769, 4, 1, b"\xff\xff\xff\xff"), (33723, 9, 1, b"ab")]
ENTRIES += [(34377, 77, 9, b"")]


@pytest.mark.parametrize("marker, body", SEGMENTS)
def test_segments_beside_the_pixels_refuse_no_jpeg(marker, body):
    plain = encoded(1, "JPEG")
    content = plain[:20] + struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body + plain[20:]
    assert (pixels(content) == pixels(plain)).all()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_entries_beside_the_pixels_refuse_no_tiff(order, entry):
    header = struct.pack(f"{order}2sHI", {"<": b"II", ">": b"MM"}[order], 42, 8 + PICTURE.size)
    long = {256: 9, 257: 9, 273: 8, 277: 3, 278: 9, 279: PICTURE.size}
    entries = [(tag, 4, 1, struct.pack(f"{order}I", value)) for tag, value in long.items()]
    entries += [(tag, 3, 1, struct.pack(f"{order}H", value)) for tag, value in ((258, 8), (259, 1), (262, 2))]
    content = header + PICTURE.astype("uint8").tobytes() + directory(*sorted([*entries, entry]), order=order)
    assert (pixels(content) == PICTURE).all()
