"""Writes sets of images in the forms that other evaluators read."""

import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from hpcddm.errors import UserError, require
from hpcddm.evaluation.image_sets import CHANNELS, ImageFiles, blocks, with_channels, write_png
from hpcddm.files import atomic

WRITTEN_AT_ONCE = 256


class DrawnImages(ImageFiles):
    """Images that were just drawn.

    Args:
        name: What the user calls them.
        pixels: (N, H, W, C) images.
        labels: (N,) classes, or None.
        class_names: Names of all classes.
        origin: Seed and settings of the sampler.
    """

    def __init__(
        self,
        name: str,
        pixels: UInt8[np.ndarray, "n h w c"],
        labels: Int64[np.ndarray, " n"] | None,
        class_names: Sequence[str],
        origin: dict[str, Any],
    ) -> None:
        self.name, self.labels, self.class_names = name, labels, class_names
        self._pixels, self._origin = pixels, origin

    @property
    def origin(self) -> dict[str, Any]:
        """Seed and settings of the sampler."""
        return self._origin

    @property
    def count(self) -> int:
        """Number of the images."""
        return len(self._pixels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of every image."""
        return self._pixels.shape[1:]

    def read(self, rows: Int64[np.ndarray, " n"]) -> np.ndarray:
        """Return images by their numbers."""
        return self._pixels[rows]


def write_images(images: ImageFiles, output: Path) -> str:
    """Write a set to an npz with `arr_0`, (N, H, W, 3), uint8, or to a new folder of PNGs; grey is repeated.

    A JSON beside it says where the images are from, and their classes in the same order.

    Returns:
        A line that says what was written.
    """
    require(not output.exists(), f"{output}: exists; name another file or folder")
    described: dict[str, Any] = {"samples": images.name, "images": images.count} | images.origin
    described |= {} if images.labels is None else {"classes": images.labels.tolist(), "names": [*images.class_names]}
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.suffix == ".npz":
            _write_array(images, output)
        else:
            _write_folder(images, output)
        atomic.write_text(output.with_name(f"{output.name}.json"), json.dumps(described) + "\n")
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror}") from None
    return f"{output}: {images.count:,} images of {images.name}; {output.name}.json says where they are from"


def _write_array(images: ImageFiles, output: Path) -> None:
    """Write block by block: the array may be larger than the memory."""
    rows = np.arange(images.count)
    with (
        atomic.replacing(output) as staged,
        zipfile.ZipFile(staged, "w") as archive,
        archive.open("arr_0.npy", "w", force_zip64=True) as file,
    ):
        for number, part in enumerate(blocks(rows, images.boundaries, WRITTEN_AT_ONCE)):
            pixels = with_channels(images.read(part), CHANNELS)
            if number == 0:
                header = {"descr": "|u1", "fortran_order": False, "shape": (images.count, *pixels.shape[1:])}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(pixels.tobytes())


def _write_folder(images: ImageFiles, output: Path) -> None:
    """Write PNGs; the folder has its name once they are complete."""
    staged = output.with_name(f".{output.name}{atomic.unique_suffix()}")
    staged.mkdir()
    try:
        for part in blocks(np.arange(images.count), images.boundaries, WRITTEN_AT_ONCE):
            for row, pixels in zip(part, with_channels(images.read(part), CHANNELS), strict=True):
                write_png(pixels, staged / f"{row:06d}.png")
        staged.rename(output)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
