"""Pictures without EXIF: emoji with places, makers and comments in every way that a file can have them."""

import io
import struct
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from hpcddm.data import image_decoding
from hpcddm.data.exif import remove_exif
from hpcddm.data.image_decoding import ImageError, read_image, to_pixels
from tests.data.refusals import assert_refused
from tests.pictures import EMOJI, SIDE

SECRETS = (b"52N13E-camera", b"Jane Doe", b"GPSLatitude")
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf exif:GPSLatitude="52,30N" dc:creator="Jane Doe"/></x:xmpmeta>'
PICTURE = Image.open(EMOJI / "sheet.png").convert("RGB").crop((0, 0, 3 * SIDE, 2 * SIDE))


def exif_of(orientation):
    exif = Image.Exif()
    exif[0x010F] = "52N13E-camera"
    if orientation:
        exif[0x0112] = orientation
    place = exif.get_ifd(0x8825)
    place[1], place[2] = "N", (52.0, 30.0, 17.0)
    return exif


def plain(name, picture=PICTURE, **options):
    stream = io.BytesIO()
    picture.save(stream, format=name, **options)
    return stream.getvalue()


def saved(name, orientation=None, picture=PICTURE, **options):
    return plain(name, picture, exif=exif_of(orientation), **options)


def png_info():
    info = PngImagePlugin.PngInfo()
    info.add_text("Author", "Jane Doe")
    info.add_itxt("XML:com.adobe.xmp", XMP.decode(), zip=False)
    return info


def jpeg_with_iptc(orientation):
    """A JPEG with a segment of Photoshop's behind the EXIF, and a second picture behind the first."""
    content = saved("JPEG", orientation)
    place = 2 + 2 + struct.unpack_from(">H", content, 4)[0]
    body = b"Photoshop 3.0\0" + b"Jane Doe"
    segment = struct.pack(">BBH", 0xFF, 0xED, len(body) + 2) + body
    return content[:place] + segment + content[place:] + saved("JPEG", 3)


SEVERAL = {"save_all": True, "append_images": [PICTURE.rotate(90)]}
RESTARTS = {"progressive": True, "restart_marker_rows": 1, "icc_profile": b"profile" * 30000}
FILES = {
    "JPEG": ("JPEG", {"xmp": XMP, "comment": "Jane Doe", "quality": 90}),
    "progressive JPEG with restarts": ("JPEG", RESTARTS),
    "grey JPEG": ("JPEG", {"picture": PICTURE.convert("L")}),
    "CMYK JPEG": ("JPEG", {"picture": PICTURE.convert("CMYK")}),
    "JPEG with IPTC and more behind it": (None, {}),
    "MPO": ("MPO", SEVERAL),
    "PNG": ("PNG", {"pnginfo": png_info()}),
    "PNG with a palette": ("PNG", {"picture": PICTURE.convert("P"), "transparency": 3}),
    "animated PNG": ("PNG", SEVERAL),
    "WebP": ("WEBP", {"xmp": XMP}),
    "lossless WebP": ("WEBP", {"picture": PICTURE.convert("RGBA"), "lossless": True}),
    "animated WebP": ("WEBP", SEVERAL),
}


def pixels(content):
    return np.asarray(to_pixels(read_image(content), 3))


@pytest.mark.parametrize("orientation", [None, *range(1, 9)])
@pytest.mark.parametrize("kind", FILES)
def test_pixels_stay_upright_and_all_else_is_gone(kind, orientation):
    name, options = FILES[kind]
    content = saved(name, orientation, **options) if name else jpeg_with_iptc(orientation)
    dropped = remove_exif(content)
    assert any(secret in content for secret in SECRETS) and len(dropped) < len(content)
    assert not any(secret in dropped for secret in SECRETS)
    assert np.array_equal(pixels(dropped), pixels(content))
    exif = Image.open(io.BytesIO(dropped)).getexif()
    assert dict(exif) == ({0x0112: orientation} if orientation not in (None, 1) else {})
    assert remove_exif(dropped) == dropped


def test_an_orientation_that_xmp_tells_is_kept():
    content = plain("JPEG", xmp=XMP.replace(b"dc:creator", b'tiff:Orientation="6" dc:creator'))
    dropped = remove_exif(content)
    assert pixels(dropped).shape == (3 * SIDE, 2 * SIDE, 3)
    assert np.array_equal(pixels(dropped), pixels(content)) and b"Jane Doe" not in dropped


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "BMP", "GIF"])
def test_a_file_with_nothing_to_drop_is_as_it_was(name):
    assert remove_exif(plain(name)) == plain(name)


@pytest.mark.parametrize("name", sorted({*image_decoding.FORMATS} - {"JPEG", "PNG", "WEBP", "BMP", "GIF"}))
def test_what_would_be_encoded_anew_is_refused(name):
    assert_refused(f"{name}: its EXIF cannot be dropped", remove_exif, saved(name), error=ImageError)


def test_a_gif_with_xmp_is_refused():
    content = plain("GIF", PICTURE.convert("P"))
    block = b"\x21\xff\x0bXMP DataXMP" + XMP + b"\x01" + bytes(range(255, -1, -1)) + b"\0"
    assert_refused("GIF: its EXIF", remove_exif, content[:-1] + block + content[-1:], error=ImageError)


@pytest.mark.parametrize("name", ["JPEG", "WEBP"])
def test_a_file_cut_anywhere_raises_nothing_but_a_picture_error(name):
    content = saved(name, 6)
    for length in range(0, len(content), 7):
        with suppress(ImageError):
            remove_exif(content[:length])


def test_the_thumbnail_of_jfif_is_gone():
    whole = plain("JPEG", Image.new("RGB", (20, 10), "red"), dpi=(72, 72))
    jfif = struct.pack(">BBH", 0xFF, 0xE0, 16 + 48) + whole[6:18] + b"\x04\x04" + bytes(range(48))
    shown = whole[:2] + jfif + whole[20:]
    assert whole[2:4] == b"\xff\xe0" and Image.open(io.BytesIO(shown)).size == (20, 10)
    assert remove_exif(shown) == whole
