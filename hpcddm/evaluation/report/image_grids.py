"""Pictures for the page and the command line: many small images as one grid, and PNG files in memory."""

import base64
import io

import numpy as np
from PIL import Image

SCREEN_PIXELS = 96
"""Approximate width of a single image on a screen; a grid enlarges small images up to it."""


def grid(images: np.ndarray, columns: int, scale: int | None = None) -> Image.Image:
    """Arrange images row by row, with transparent gaps, every pixel a square of scale x scale equal ones.

    images: uint8 (N, H, W, C) with C = 1 or 3; the picture has mode LA or RGBA. Without `scale` small images
    are enlarged for the screen. Raises ValueError without images.
    """
    count, height, width, channels = images.shape
    if not count:
        raise ValueError("a grid needs at least one image")
    columns = min(columns, count)
    rows = -(-count // columns)
    gap = _gap(width)
    opaque = np.concatenate([images, np.full((count, height, width, 1), 255, np.uint8)], axis=3)
    canvas = np.zeros((rows * (height + gap), columns * (width + gap), channels + 1), np.uint8)
    for number, image in enumerate(opaque):
        y, x = number // columns * (height + gap), number % columns * (width + gap)
        canvas[y : y + height, x : x + width] = image
    if scale is None:
        scale = max(1, SCREEN_PIXELS // max(height, width))
    return Image.fromarray(canvas[:-gap, :-gap].repeat(scale, axis=0).repeat(scale, axis=1))


def enlargement(width: int, columns: int, max_width: int) -> int:
    """Return the largest whole factor, at least 1, at which `columns` images of `width` pixels fit into `max_width`."""
    gap = _gap(width)
    return max(1, max_width // (columns * (width + gap) - gap))


def shrink(images: np.ndarray, limit: int) -> np.ndarray:
    """Average images over blocks of pixels so that neither side is above `limit`; small ones stay as they are.

    images: uint8 (N, H, W, C); up to one block less a pixel at the right and lower edge is cut off.
    """
    count, height, width, channels = images.shape
    factor = -(-max(height, width) // limit)
    if factor == 1:
        return images
    rows, columns = height // factor, width // factor
    blocks = images[:, : rows * factor, : columns * factor].reshape(count, rows, factor, columns, factor, channels)
    return blocks.mean(axis=(2, 4)).round().astype(np.uint8)


def png_bytes(image: Image.Image) -> bytes:
    """Encode the picture as a PNG file; equal pictures give equal bytes."""
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def data_uri(image: Image.Image) -> str:
    """Encode the picture as the source of an HTML image."""
    return f"data:image/png;base64,{base64.b64encode(png_bytes(image)).decode('ascii')}"


def _gap(width: int) -> int:
    return max(1, width // 32)
