"""Files of every mode and format become the pixels that a computation of its own expects."""

import io
import random
import struct
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms

from hpcddm.data import image_decoding
from hpcddm.data.image_decoding import ImageError, decode, read_image, rotate_upright, to_pixels
from tests.catalogs import CENTRE_CROP
from tests.data.refusals import assert_refused
from tests.pictures import EMOJI

PICTURE = Image.open(EMOJI / "sheet.png").convert("RGB").crop((0, 0, 96, 72))
RGB = np.asarray(PICTURE).astype(int)
GREY = np.asarray(PICTURE.convert("L")).astype(int)
ALPHA = np.linspace(0, 255, RGB[..., 0].size).round().astype(np.uint8).reshape(GREY.shape)
SIXTEEN = (GREY * 256 + ALPHA).astype(np.uint16)
"""Grey with 16 bits, of which the upper 8 are GREY."""
FINE = {
    "JPEG": {"quality": 100, "subsampling": 0},
    "WEBP": {"lossless": True, "exact": True},
    "AVIF": {"quality": 100, "subsampling": "4:4:4"},
}
"""Options of formats that otherwise lose something."""


def saved(image, file_format="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, file_format, **FINE.get(file_format, {}), **options)
    return stream.getvalue()


def pixels(content, channels=3):
    return np.asarray(to_pixels(read_image(content), channels)).astype(int)


def with_alpha(image):
    image = image.copy()
    image.putalpha(Image.fromarray(ALPHA))
    return image


def on_white(values, alpha):
    share = (alpha / 255).reshape(*alpha.shape, *[1] * (values.ndim - 2))
    return np.round(values * share + 255 * (1 - share)).astype(int)


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def behind_header(png, kind, content):
    """A PNG with a chunk more."""
    return png[:33] + chunk(kind, content) + png[33:]


def ycck():
    """A JPEG as Adobe's programs write it: luminance and colour of the inverted inks, and black."""
    colours = 255 - np.asarray(Image.fromarray((255 - RGB).astype(np.uint8)).convert("YCbCr"))
    planes = np.dstack([colours, np.zeros(GREY.shape, np.uint8)])
    content = saved(Image.fromarray(planes, "CMYK"), "JPEG")
    place = content.index(b"Adobe") + 11
    return content[:place] + b"\x02" + content[place + 1 :]


PALETTE = PICTURE.quantize(64)
INDICES = np.asarray(PALETTE)
COLOURS = np.array(PALETTE.getpalette()).reshape(-1, 3)[INDICES]
OPACITY = np.array([0, 128, 64] + 61 * [255])
WITHOUT_THIRD = np.where((INDICES == 3)[..., None], 255, COLOURS)
FIRST = PICTURE.getpixel((0, 0))
WITHOUT_FIRST = np.where((RGB == FIRST).all(-1, keepdims=True), 255, RGB)
TO_LAB = ImageCms.buildTransform(ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB")

CASES = {
    "RGB": (saved(PICTURE), RGB, 0),
    "RGB BMP": (saved(PICTURE, "BMP"), RGB, 0),
    "RGB WebP": (saved(PICTURE, "WEBP"), RGB, 0),
    "RGB JPEG 2000": (saved(PICTURE, "JPEG2000"), RGB, 0),
    "RGB JPEG": (saved(PICTURE, "JPEG"), RGB, 6),
    "RGB AVIF": (saved(PICTURE, "AVIF"), RGB, 12),
    "RGB with a transparent colour": (saved(PICTURE, transparency=FIRST), WITHOUT_FIRST, 0),
    "RGBA": (saved(with_alpha(PICTURE)), on_white(RGB, ALPHA), 0),
    "RGBA WebP": (saved(with_alpha(PICTURE), "WEBP"), on_white(RGB, ALPHA), 0),
    "RGBA TIFF": (saved(with_alpha(PICTURE), "TIFF"), on_white(RGB, ALPHA), 0),
    "L": (saved(PICTURE.convert("L")), GREY, 0),
    "L with a transparent grey": (saved(PICTURE.convert("L"), transparency=9), np.where(GREY == 9, 255, GREY), 0),
    "LA": (saved(with_alpha(PICTURE.convert("L"))), on_white(GREY, ALPHA), 0),
    "P": (saved(PALETTE), COLOURS, 0),
    "P with a transparent colour": (saved(PALETTE, transparency=3), WITHOUT_THIRD, 0),
    "P with alpha": (saved(PALETTE, transparency=bytes(OPACITY.tolist())), on_white(COLOURS, OPACITY[INDICES]), 0),
    "P GIF": (saved(PALETTE, "GIF"), COLOURS, 0),
    "P GIF with a transparent colour": (saved(PALETTE, "GIF", transparency=3), WITHOUT_THIRD, 0),
    "1": (saved(PICTURE.convert("1")), np.asarray(PICTURE.convert("1")) * 255, 0),
    "I;16": (saved(Image.fromarray(SIXTEEN)), GREY, 0),
    "I;16 with a transparent grey": (
        behind_header(saved(Image.fromarray(SIXTEEN)), b"tRNS", struct.pack(">H", SIXTEEN[5, 5])),
        np.where(SIXTEEN == SIXTEEN[5, 5], 255, GREY),
        0,
    ),
    "I;16 TIFF": (saved(Image.fromarray(SIXTEEN), "TIFF"), GREY, 0),
    "I;16B TIFF": (saved(Image.fromarray(SIXTEEN.astype(">u2")), "TIFF"), GREY, 0),
    "I TIFF": (saved(Image.fromarray(SIXTEEN.astype(np.int32)), "TIFF"), GREY, 0),
    "CMYK TIFF": (saved(PICTURE.convert("CMYK"), "TIFF"), RGB, 0),
    "CMYK JPEG": (saved(PICTURE.convert("CMYK"), "JPEG"), RGB, 2),
    "CMYK JPEG with luminance": (ycck(), RGB, 6),
    "YCbCr TIFF": (saved(PICTURE.convert("YCbCr"), "TIFF"), RGB, 4),
    "LAB TIFF": (saved(TO_LAB.apply(PICTURE), "TIFF"), RGB, 9),
}


@pytest.mark.parametrize("case", CASES)
def test_every_mode_becomes_rgb_and_grey(case):
    content, expected, tolerance = CASES[case]
    image = read_image(content)
    assert image.mode == case.split()[0]
    coloured = expected if expected.ndim == 3 else expected[..., None].repeat(3, axis=2)
    assert np.abs(pixels(content) - coloured).max() <= tolerance
    grey = np.round(coloured @ [0.299, 0.587, 0.114]).astype(int)
    assert np.abs(pixels(content, 1) - grey).max() <= (tolerance if expected.ndim == 2 else tolerance + 1)


@pytest.mark.parametrize("value", [np.int32(-1), np.int32(70000), np.float32(0.5)], ids=str)
def test_numbers_without_a_known_range_are_refused(value):
    content = saved(Image.fromarray(np.full((4, 4), value)), "TIFF")
    assert_refused(r"^pixels are .*, whose range is not known$", decode, content, 3, 4, CENTRE_CROP, error=ImageError)


STORED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""How a camera stores an upright picture, by its EXIF orientation."""


@pytest.mark.parametrize("file_format, tolerance", [("JPEG", 6), ("PNG", 0), ("WEBP", 0), ("TIFF", 0)])
@pytest.mark.parametrize("orientation", range(10))
def test_pictures_are_turned_upright(file_format, tolerance, orientation):
    image = PICTURE.transpose(STORED[orientation]) if orientation in STORED else PICTURE
    exif = Image.Exif()
    exif[0x112] = orientation
    turned = rotate_upright(read_image(saved(image, file_format, exif=exif)))
    assert turned.size == PICTURE.size and np.abs(np.asarray(turned).astype(int) - RGB).max() <= tolerance
    assert rotate_upright(turned) is turned


def test_an_orientation_that_cannot_be_read_turns_nothing():
    content = saved(PICTURE, "JPEG", exif=b"Exif\0\0no header")
    assert np.abs(pixels(content) - RGB).max() <= 6


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_an_animation_the_first_frame_is_taken(file_format):
    image = PALETTE if file_format == "GIF" else PICTURE
    content = saved(image, file_format, save_all=True, append_images=[image.rotate(180), image.rotate(90)])
    assert read_image(content).n_frames == 3
    assert np.array_equal(pixels(content), COLOURS if file_format == "GIF" else RGB)


def bomb(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(bytes(1000))), chunk(b"IEND", b"")]
    return image_decoding.PNG_SIGNATURE + b"".join(chunks)


BOMBS = {"PNG": bomb(100_000, 100_000), "wide PNG": bomb(1_000_000, 1000), "just too large": bomb(16_001, 16_000)}
BOMBS["BMP"] = b"BM" + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, 40_000, 40_000, 1, 24, 0, 0, 0, 0, 0, 0)
BOMBS["GIF"] = b"GIF89a" + struct.pack("<HH", 65_000, 65_000) + saved(PALETTE, "GIF")[10:]


@pytest.mark.parametrize("case", BOMBS)
@pytest.mark.parametrize("limit", [image_decoding.Image.MAX_IMAGE_PIXELS, None])
def test_a_header_of_too_many_pixels_costs_neither_time_nor_memory(case, limit, monkeypatch):
    """Another library may have lifted Pillow's own limit."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    tracemalloc.start()
    begin = time.process_time()
    assert_refused(
        "^its header says more than 256000000 pixels$", decode, BOMBS[case], 3, 8, CENTRE_CROP, error=ImageError
    )
    seconds, (_, peak) = time.process_time() - begin, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 0.1 and peak < 1_000_000


BROKEN = [
    (b"", "the file is empty"),
    (b"<html>404</html>" * 100, r"no image \(PNG, JPEG, .*\)"),
    (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", r"no image \(PNG, JPEG, .*\)"),
    (image_decoding.PNG_SIGNATURE, "PNG truncated at byte 8"),
    (saved(PICTURE)[:-5], "PNG truncated at byte [0-9]+"),
    (saved(PICTURE)[:500], "PNG truncated at byte 500"),
    (saved(PICTURE, "JPEG")[:-50], "JPEG damaged: .*truncated.*"),
    (saved(PICTURE, "WEBP")[:-50], "image damaged: .*"),
    (bomb(100, 0), "no image .*"),
    (bomb(100, 100), "PNG damaged: .*"),
]


@pytest.mark.parametrize("content, reason", BROKEN)
def test_a_broken_file_is_refused_with_one_reason(content, reason):
    assert_refused(f"^({reason})$", decode, content, 3, 8, CENTRE_CROP, error=ImageError)


def test_a_flipped_bit_among_a_pngs_pixels_is_found():
    plain = saved(PICTURE, compress_level=0)
    for content, start in ((plain, 33), (behind_header(plain, b"caBX", bytes(100)), 145)):
        for place in range(content.index(b"IDAT"), content.index(b"IEND") - 8, 997):
            damaged = bytearray(content)
            damaged[place] ^= 4
            with pytest.raises(ImageError, match=f"^PNG damaged: wrong checksum of the chunk at byte {start}$"):
                decode(bytes(damaged), 3, 8, CENTRE_CROP)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000"])
def test_damage_anywhere_raises_nothing_else(file_format):
    rng, whole = random.Random(0), saved(PICTURE, file_format)
    for number in range(100):
        damaged = bytearray(whole[: rng.randrange(len(whole))] if number % 2 else whole)
        for _ in range(number % 3):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        try:
            assert decode(bytes(damaged), 3, 8, CENTRE_CROP).shape == (8, 8, 3)
        except ImageError as error:
            assert str(error)


@pytest.mark.parametrize("mode, channels", [("L", 1), ("RGB", 3), ("L", 3), ("RGB", 1)])
@pytest.mark.parametrize("size", [(96, 72), (50, 71), (32, 32), (16, 9)])
def test_the_default_is_the_middle_square_resized(mode, channels, size):
    """Shards that were written before there were transforms have these bits."""
    image = PICTURE.resize(size).convert(mode)
    side = min(size)
    x, y = (size[0] - side) // 2, (size[1] - side) // 2
    square = image.convert("RGB" if channels == 3 else "L").crop((x, y, x + side, y + side))
    expected = np.asarray(square if side == 32 else square.resize((32, 32), Image.Resampling.LANCZOS))
    assert np.array_equal(decode(saved(image), channels, 32, CENTRE_CROP), expected.reshape(32, 32, channels))
