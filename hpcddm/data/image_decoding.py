"""Pictures: the one place where a picture's file becomes pixels.

The steps can be used apart: `open_image` looks at the header, `read_image` decodes, `rotate_upright` turns, `to_pixels`
makes L or RGB of every mode, a transform makes a square of it. Colour profiles are not applied.
"""

import io
import math
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageCms, UnidentifiedImageError

from hpcddm.data.segments import PNG_SIGNATURE, remove_metadata
from hpcddm.data.transforms.base import Transform
from hpcddm.errors import UserError, require

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000")
"""Formats that are read, whatever a file's name; Pillow's others are not for photographs, or start programs."""
MAX_PIXELS = 256_000_000
"""Largest number of pixels of a picture; as many take 1 GB of memory."""

ORIENTATION_TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transpositions that make a picture upright, by its EXIF orientation; 1 needs none (Exif 2.32, section 4.6.4)."""
ORIENTATION_KEYS = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")
"""Entries of Pillow's `info` that may have an orientation."""
FAILURES = (
    *(OSError, ValueError, SyntaxError, TypeError, LookupError, ArithmeticError, EOFError, RuntimeError),
    *(struct.error, zlib.error),
)
"""Whatever Pillow's decoders raise for a broken file."""

# Pillow refuses a picture of twice as many pixels, and parts of it such as a tile of a TIFF, and warns of half of them.
Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class ImageError(UserError):
    """Error for a file that is not a usable picture; the message is the reason, and the caller adds the place."""


def decode(content: bytes, channels: int, size: int, transform: Transform[Any]) -> UInt8[np.ndarray, "h w c"]:
    """Return the pixels of a picture's file, h = w = size, c = channels (1 or 3); raises `ImageError`."""
    pixels = np.asarray(fit_to_shape(read_image(content), channels, size, transform))
    return pixels if pixels.ndim == 3 else pixels[..., None]


def fit_to_shape(image: Image.Image, channels: int, size: int, transform: Transform[Any]) -> Image.Image:
    """Return a picture in the form that networks use; unchanged if it has it already. Raises `ImageError`."""
    return transform.fit(to_pixels(image, channels), size)


def read_image(content: bytes) -> Image.Image:
    """Decode a picture's file, of an animation the first frame; raises `ImageError`."""
    return _in_spite_of_metadata(_decoded, content)


def open_image(content: bytes) -> Image.Image:
    """Read the header of a picture's file; only then is it safe to decode. Raises `ImageError`."""
    return _in_spite_of_metadata(_opened, content)


def _in_spite_of_metadata(read: Callable[[bytes], Image.Image], content: bytes) -> Image.Image:
    """Read a picture; on failure, try again without the metadata, such as a text of megabytes."""
    try:
        return read(content)
    except ImageError:
        bare = remove_metadata(content)
        if bare is not None:
            with suppress(ImageError):
                return read(bare)
        raise


def _decoded(content: bytes) -> Image.Image:
    image = _opened(content)
    with _convert_errors(image.format):
        image.load()
    return image


def _opened(content: bytes) -> Image.Image:
    require(content != b"", "the file is empty", ImageError)
    if content.startswith(PNG_SIGNATURE):
        _check_png(content)
    with _convert_errors(None):
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        # Another library may have lifted Pillow's own limit.
        if math.prod(image.size) > MAX_PIXELS:
            raise Image.DecompressionBombError
    return image


def orientation_of(image: Image.Image) -> int:
    """Return EXIF's orientation, from 1 to 8; 1, which rotates nothing, for any other value."""
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except FAILURES:
        # What cannot be read turns nothing: other programs show such a picture as it is stored.
        return 1
    return next((number for number in ORIENTATION_TRANSPOSES if number == orientation), 1)


def rotate_upright(image: Image.Image) -> Image.Image:
    """Turn a picture as its EXIF orientation says; itself where nothing is to be turned.

    No EXIF is written for that: it may hold tags that Pillow can read only.
    """
    orientation = orientation_of(image)
    if orientation == 1:
        return image
    turned = image.transpose(ORIENTATION_TRANSPOSES[orientation])
    for name in ORIENTATION_KEYS:
        turned.info.pop(name, None)
    return turned


def to_pixels(image: Image.Image, channels: int) -> Image.Image:
    """Return a picture upright, in mode L for one channel and RGB for three; raises `ImageError`.

    Transparent pixels are laid on white; of 16 bits the upper 8 stay.
    """
    mode = "RGB" if channels == 3 else "L"
    with _convert_errors(image.format):
        image = rotate_upright(image)
        require(image.mode != "F", "pixels are floating-point numbers, whose range is not known", ImageError)
        if image.mode.startswith("I"):
            image = _upper_byte(image)
        elif image.mode == "LAB":
            image = _from_lab(image)
        elif image.has_transparency_data:
            image = _on_white(image)
        return image if image.mode == mode else image.convert(mode)


@contextmanager
def _convert_errors(file_format: str | None) -> Iterator[None]:
    """Give what Pillow raises as a `ImageError`."""
    try:
        yield
    except Image.DecompressionBombError:
        raise ImageError(f"its header says more than {MAX_PIXELS} pixels") from None
    except UnidentifiedImageError:
        raise ImageError(f"no image ({', '.join(FORMATS)})") from None
    except FAILURES as error:
        raise ImageError(f"{file_format or 'image'} damaged: {error}") from None


def _check_png(content: bytes) -> None:
    """Check the lengths and the CRC-32 of all chunks: Pillow does not look at those of the pixels."""
    place, kind, view = len(PNG_SIGNATURE), b"", memoryview(content)
    while kind != b"IEND":
        end = place + 12 + int.from_bytes(content[place : place + 4], "big")
        require(end <= len(content), f"PNG truncated at byte {len(content)}", ImageError)
        kind = content[place + 4 : place + 8]
        if zlib.crc32(view[place + 4 : end - 4]) != struct.unpack_from(">I", content, end - 4)[0]:
            raise ImageError(f"PNG damaged: wrong checksum of the chunk at byte {place}")
        place = end


def _upper_byte(image: Image.Image) -> Image.Image:
    """Return a grey picture of 16 bits in mode L; its modes are I;16, I;16B, and I, which could hold 32 bits."""
    values = np.asarray(image)
    if values.min() < 0 or values.max() > 0xFFFF:
        raise ImageError("pixels are numbers of 32 bits, whose range is not known")
    pixels = (values >> 8).astype(np.uint8)
    if "transparency" in image.info:
        pixels[values == image.info["transparency"]] = 255
    return Image.fromarray(pixels)


def _from_lab(image: Image.Image) -> Image.Image:
    """Convert CIELAB, of the white point D50, to sRGB."""
    profiles = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    return ImageCms.buildTransform(*profiles, "LAB", "RGB").apply(image)


def _on_white(image: Image.Image) -> Image.Image:
    """Lay a picture with transparent pixels on white."""
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
