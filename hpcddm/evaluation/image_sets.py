"""Sets of images that anybody may have made: folders, arrays of numpy, tars; and published statistics of features."""

import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Int64, UInt8
from PIL import Image

from hpcddm.data.image_decoding import MAX_PIXELS, ImageError, read_image, to_pixels
from hpcddm.data.tars.tar_index import index_tar
from hpcddm.data.tars.tar_layout import IMAGES
from hpcddm.errors import UserError, require

LOSSY_FORMATS = {"JPEG", "MPO", "WEBP", "AVIF", "JPEG2000"}
"""Formats of Pillow that may have changed the pixels of samples."""
KINDS = "a folder of PNGs, or of one folder per class; an npz with arr_0; a tar, or a folder of tars; RUN:ARM"
CHANNELS, READERS = 3, 4
FAILURES = (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What numpy and zipfile raise for damaged, encrypted and unknown archives."""


class ImageFiles(ABC):
    """Images of one shape in one order: three channels, or those of a run."""

    name: str
    labels: Int64[np.ndarray, " n"] | None
    """(N,) classes; None for images without classes."""
    class_names: Sequence[str] = ()
    """Names of the classes; empty where they have none."""
    boundaries: Sequence[int] = ()
    """Numbers at which a block of images that are measured at once ends."""

    @property
    def origin(self) -> dict[str, Any]:
        """Return how the images were made, as far as that is known."""
        return {}

    def captions(self, rows: Int64[np.ndarray, " n"]) -> list[str]:
        """Return the captions of images; empty for images without captions."""
        return []

    @property
    @abstractmethod
    def count(self) -> int:
        """Number N of the images."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape (H, W, C) of every image."""

    @abstractmethod
    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[np.ndarray, "n h w c"]:
        """Read images by their ascending numbers; a later call asks for later ones.

        Raises:
            UserError: An image is damaged, or has another size than the first. The message names it.
        """


class FileImages(ImageFiles):
    """Images that each have bytes of their own: files of a folder, or members of tars.

    Args:
        name: What the user calls the set.
        places: Names of the images, for errors.
        read_bytes: Reads the bytes of an image by its number.
        labels: (N,) classes, or None.
        is_lossy_allowed: False refuses images that were stored with loss, whatever their names.
    """

    def __init__(
        self,
        name: str,
        places: Sequence[str],
        read_bytes: Callable[[int], bytes],
        labels: np.ndarray | None,
        is_lossy_allowed: bool,
    ) -> None:
        require(len(places) > 0, f"{name}: has no images; give {KINDS}")
        self.name, self.labels = name, labels
        self._places, self._read_bytes, self._is_lossy_allowed = places, read_bytes, is_lossy_allowed

    @property
    def count(self) -> int:
        """Number of the files."""
        return len(self._places)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first image."""
        return self._decode(0).shape

    def read(self, rows: Int64[np.ndarray, " n"]) -> np.ndarray:
        """Decode files; transparent pixels are laid on white, and grey ones repeated."""
        with ThreadPoolExecutor(READERS) as pool:
            return np.stack([*pool.map(self._decode, rows)])

    def _decode(self, row: int) -> np.ndarray:
        try:
            stored = read_image(self._read_bytes(row))
            pixels = np.asarray(to_pixels(stored, CHANNELS))
        except (ImageError, OSError) as error:
            raise UserError(f"{self._places[row]}: {error}") from None
        require(
            self._is_lossy_allowed or stored.format not in LOSSY_FORMATS,
            f"{self._places[row]}: is {stored.format}, which changes the distances of samples; store PNGs, or compare"
            " them as they are with --allow-jpeg",
        )
        if row > 0 and pixels.shape != self.shape:
            sizes = [f"{width} x {height}" for height, width, _ in (pixels.shape, self.shape)]
            raise UserError(f"{self._places[row]}: has {sizes[0]} pixels, and {self._places[0]} {sizes[1]}")
        return pixels


class ArrayImages(ImageFiles):
    """The array `arr_0` of an npz, (N, H, W, 3), uint8; classes may be in `arr_1`. It is read block by block."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self._path = name, path
        self._archive = zipfile.ZipFile(path)
        self._file, self._all = self._opened()
        self._next, self.labels = 0, self._stored_labels()

    @property
    def count(self) -> int:
        """Length of the array."""
        return self._all[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The other axes of the array."""
        return self._all[1:]

    def read(self, rows: Int64[np.ndarray, " n"]) -> np.ndarray:
        """Read rows of the array, and pass over those between them."""
        try:
            return self._read(rows)
        except FAILURES as error:
            raise UserError(f"{self._path}: arr_0 cannot be read at image {self._next}: {error}") from None

    def _read(self, rows: Int64[np.ndarray, " n"]) -> np.ndarray:
        if rows[0] < self._next:
            self._file, self._next = self._opened()[0], 0
        found = np.empty((len(rows), *self.shape), dtype=np.uint8)
        for place, row in zip(found, rows, strict=True):
            for _ in range(row + 1 - self._next):
                content = self._file.read(place.nbytes)
                require(len(content) == place.nbytes, f"{self._path}: arr_0 is truncated at image {self._next}")
                self._next += 1
            place[...] = np.frombuffer(content, dtype=np.uint8).reshape(place.shape)
        return found

    def _opened(self) -> tuple[IO[bytes], tuple[int, ...]]:
        file = self._archive.open("arr_0.npy")
        shape, is_fortran, dtype = _read_header(file)
        fault = _array_fault(shape, dtype, is_fortran)
        require(fault is None, f"{self._path}: arr_0 {fault}; ADM's evaluator reads uint8, (N, H, W, 3)")
        return file, shape

    def _stored_labels(self) -> np.ndarray | None:
        if "arr_1.npy" not in self._archive.namelist():
            return None
        with self._archive.open("arr_1.npy") as file:
            shape, _, dtype = _read_header(file)
            if dtype.kind not in "iu" or shape != (self.count,):
                return None
            return np.frombuffer(file.read(), dtype=dtype, count=self.count).astype(np.int64)


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read shape, order and type of an array; nothing of it is unpickled."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    return shape, is_fortran, dtype


def _array_fault(shape: tuple[int, ...], dtype: np.dtype, is_fortran: bool) -> str | None:
    """Say why an array is not a set of images; None for a sound one."""
    if dtype.hasobject:
        return "holds pickled objects, which are never loaded"
    if len(shape) != 4:
        return f"has the shape {shape}"
    if shape[-1] != CHANNELS and shape[1] in (1, CHANNELS):
        return f"has the shape {shape}, channels first: write array.transpose(0, 2, 3, 1)"
    if shape[-1] == 1:
        return "has one channel: write numpy.repeat(array, 3, axis=3)"
    if shape[-1] != CHANNELS or shape[1] * shape[2] > MAX_PIXELS or min(shape) < 1 or is_fortran:
        return f"has the shape {shape}{', in the order of Fortran' if is_fortran else ''}"
    return None if dtype == np.uint8 else f"has the type {dtype}: round to 0 ... 255 and write uint8"


@dataclass(frozen=True)
class FeatureMoments:
    """Mean and covariance of features that somebody else has published: `mu` (D,) and `sigma` (D, D) of an npz."""

    name: str
    mean: np.ndarray
    covariance: np.ndarray
    count: int | None
    """Number of the images; None if the file does not say it."""


def open_images(name: str, is_lossy_allowed: bool) -> ImageFiles | FeatureMoments:
    """Open a set of images, or published statistics.

    Args:
        name: A path, as the user typed it.
        is_lossy_allowed: False refuses JPEG and WebP: samples that were stored like this have other distances.

    Raises:
        UserError: It is none of `KINDS`, or is damaged. The message names the file and the way out.
    """
    path = Path(name)
    try:
        if path.is_dir():
            tars = sorted(path.glob("*.tar"))
            return _tars(name, tars, is_lossy_allowed) if tars else _folder(name, path, is_lossy_allowed)
        if path.suffix == ".tar":
            return _tars(name, [path], is_lossy_allowed)
        if path.suffix == ".npz":
            return _npz(name, path)
    except FAILURES as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    raise UserError(f"{path}: {'is missing' if not path.exists() else 'is not a set of images'}; give {KINDS}")


def _folder(name: str, path: Path, is_lossy_allowed: bool) -> ImageFiles:
    """Open a folder of images, or of one folder per class."""
    images = _image_files(path)
    folders = {folder: _image_files(folder) for folder in sorted(path.iterdir()) if folder.is_dir()}
    classes = {folder.name: files for folder, files in folders.items() if files}
    require(not (images and classes), f"{path}: has images beside folders of images; give one or the other")
    files = images or [file for own in classes.values() for file in own]
    numbers = [number for number, own in enumerate(classes.values()) for _ in own]
    labels = np.array(numbers) if classes else None
    found = FileImages(
        name, [str(file) for file in files], lambda row: files[row].read_bytes(), labels, is_lossy_allowed
    )
    found.class_names = [*classes]
    return found


def _image_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower()[1:] in IMAGES and file.is_file())


def _tars(name: str, tars: Sequence[Path], is_lossy_allowed: bool) -> ImageFiles:
    """Open tars as WebDataset has them: a class is the member `cls` beside an image."""
    indices = [index_tar(tar) for tar in tars]
    members = [
        (index.path, int(offset), int(size))
        for index in indices
        for offset, size in zip(index.offsets, index.sizes, strict=True)
    ]
    labels = [index.labels.astype(np.int64) for index in indices if index.labels is not None]
    return FileImages(
        name,
        [f"{index.path}: {key}" for index in indices for key in index.keys],
        lambda row: _read_part(*members[row]),
        np.concatenate(labels) if len(labels) == len(indices) else None,
        is_lossy_allowed,
    )


def _read_part(path: Path, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def _npz(name: str, path: Path) -> ImageFiles | FeatureMoments:
    with zipfile.ZipFile(path) as archive:
        names = {member.removesuffix(".npy") for member in archive.namelist()}
    if "arr_0" in names:
        return ArrayImages(name, path)
    require({"mu", "sigma"} <= names, f"{path}: has {', '.join(sorted(names))}; needs arr_0, or mu and sigma")
    with np.load(path, allow_pickle=False) as stored:
        mean, covariance = (stored[key].astype(np.float64) for key in ("mu", "sigma"))
        count = int(stored["images"]) if "images" in names else None
    is_sound = mean.ndim == 1 and covariance.shape == (len(mean), len(mean))
    require(
        is_sound and bool(np.isfinite(mean).all() and np.isfinite(covariance).all()),
        f"{path}: mu {mean.shape} and sigma {covariance.shape} are not a finite mean and its covariance",
    )
    return FeatureMoments(name, mean, covariance, count)


def every_nth(count: int, wanted: int) -> Int64[np.ndarray, " n"]:
    """Choose numbers below `count` at equal distances, so that sets sorted by class stay balanced."""
    return np.arange(wanted) * count // wanted


def blocks(rows: Int64[np.ndarray, " n"], boundaries: Sequence[int], size: int) -> Iterator[np.ndarray]:
    """Cut ascending numbers of images into blocks of at most `size` that cross no boundary."""
    for part in np.split(rows, np.searchsorted(rows, boundaries)):
        yield from (part[start : start + size] for start in range(0, len(part), size))


def write_png(pixels: UInt8[np.ndarray, "h w c"], path: Path) -> None:
    """Write one image without loss."""
    Image.fromarray(pixels).save(path, format="PNG")


def with_channels(pixels: UInt8[np.ndarray, "n h w c"], channels: int) -> UInt8[np.ndarray, "n h w d"]:
    """Repeat grey images to so many channels; images that have them already are returned as they are."""
    return pixels if pixels.shape[3] == channels else np.repeat(pixels, channels, axis=3)
