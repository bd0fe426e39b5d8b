"""Copies of samples as tars of their own, with a catalog: for a partner, an object store, or the disk of a node."""

import io
import zlib
from collections.abc import Callable, Container, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Integer
from PIL import Image

from hpcddm.data.catalog import Catalog, CatalogPart, SplitEntry, catalog_as_json, read_catalog, split_into_blocks
from hpcddm.data.column_files import write_columns
from hpcddm.data.exif import remove_exif
from hpcddm.data.image_decoding import ImageError
from hpcddm.data.images import CatalogImages
from hpcddm.data.sample_file import SampleFile
from hpcddm.data.tars.tar_index import TarIndex, checksums, columns_of, index_tar
from hpcddm.data.tars.tar_writing import Sample, write_samples
from hpcddm.errors import UserError, require
from hpcddm.files import atomic, guarded_writes
from hpcddm.files.atomic import digest
from hpcddm.runs.files import CATALOG_FILE, tar_file
from hpcddm.runs.ranges import TRAIN

ListNumbers = range | Integer[np.ndarray, " n"]
"""Numbers of the samples of a list, in ascending order."""
TAR_BYTES = 1 << 30
"""Bytes of images after which a tar is full."""
PART_SAMPLES = 1 << 20
"""Number of samples after which a file of columns is full."""
SAMPLE_BYTES = 4000
"""Bytes that a sample may take beside its image: headers and padding of three members, a caption, the columns."""
TAR_END_BYTES = 10240
"""Bytes with which a tar may end, as its length is a multiple of them."""
SAMPLES_AT_ONCE = 256
EXTENSIONS = {"JPEG": "jpg", "MPO": "jpg", "TIFF": "tif", "JPEG2000": "jp2"}
"""Extensions of formats whose name is none."""


def write_copy(
    folder: Path, source: Catalog, numbers: ListNumbers, advance: Callable[[int], None], drops_exif: bool = False
) -> Catalog:
    """Copy samples in their order, the images' files as they are, and return the catalog of the copy.

    Tars that an interrupted attempt completed stay, where they hold these samples. advance: called with the number of
    samples that are copied; it may raise. drops_exif: copy the files `remove_exif`. Raises `UserError` naming a tar
    that cannot be read, or a sample whose EXIF cannot be dropped.
    """
    columns = ["crc32", "key", "offset", "size", "tar", *filter(source.has, ("label", "caption"))]
    entry, indices, done = SplitEntry(sorted(columns), [], [], source.image_format), {}, 0
    files = _Files(source, drops_exif)
    for block in _tars(source, numbers):
        path = folder / tar_file(len(entry.tars))
        index = _kept(path, files, block)
        if index is None:
            with atomic.replacing(path) as staged:
                write_samples(staged, _samples(files, block, done, advance))
            index = index_tar(path)
        indices[len(entry.tars)] = index
        entry.tars.append(SampleFile(path.name, path.stat().st_size))
        done += len(block)
        if done == len(numbers) or sum(len(index.keys) for index in indices.values()) >= PART_SAMPLES:
            entry.parts.append(_write_part(folder, len(entry.parts), indices))
            indices = {}
    copy = Catalog(folder, entry)
    require(
        files.are_in(copy, numbers),
        f"{folder}: the samples that were copied are not those of the list; remove its tars, submit again",
    )
    _remove_others(folder, copy.files)
    # Last, so that a copy with a catalog is complete.
    atomic.write_json(folder / CATALOG_FILE, catalog_as_json({TRAIN: entry}))
    return copy


def open_copy(folder: Path) -> Catalog:
    """Open the catalog of a complete copy; raises `UserError` when it is missing or torn."""
    return read_catalog(folder / CATALOG_FILE, TRAIN, folder)


def files_of(copy: Catalog) -> list[str]:
    """List the files of a copy, relative to its folder."""
    return [CATALOG_FILE, *copy.files]


def largest_bytes(source: Catalog, numbers: ListNumbers) -> int:
    """Return the most bytes that a copy of these samples takes."""
    sizes = source.column("size")
    images = sum(int(sizes.gather(block).sum(dtype=np.int64)) for block in split_into_blocks(numbers))
    return images + SAMPLE_BYTES * len(numbers) + TAR_END_BYTES * (images // TAR_BYTES + 1)


def _tars(source: Catalog, numbers: ListNumbers) -> Iterator[ListNumbers]:
    """Split samples among the tars; each tar ends with the image that fills it."""
    sizes, start, place, filled = source.column("size"), 0, 0, 0
    for block in split_into_blocks(numbers):
        for size in sizes.gather(block).tolist():
            place, filled = place + 1, filled + size
            if filled >= TAR_BYTES:
                yield numbers[start:place]
                start, filled = place, 0
    if start < place:
        yield numbers[start:]


class _Files:
    """Files of the images of samples, as they are or without EXIF; the sizes of these are known once they are made."""

    def __init__(self, source: Catalog, drops_exif: bool) -> None:
        self.source, self._images, self._drops_exif = source, CatalogImages(source), drops_exif
        self._sizes, self._checksums = source.column("size"), source.column("crc32")

    def read(self, numbers: ListNumbers) -> list[bytes]:
        """Return the files as they are copied; raises `UserError` naming a sample whose EXIF cannot be dropped."""
        files = self._images.files(numbers)
        if not self._drops_exif:
            return files
        keys, checksums = self.source.texts("key").gather(numbers), self._checksums.gather(numbers).tolist()
        return [_without_exif(*file) for file in zip(keys, files, checksums, strict=True)]

    def sizes_and_checksums(self, numbers: ListNumbers) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes and the CRC-32 that the copied files have, each (N,)."""
        if not self._drops_exif:
            return self._sizes.gather(numbers), self._checksums.gather(numbers)
        blocks = split_into_blocks(numbers, SAMPLES_AT_ONCE)
        made = np.array([(len(file), zlib.crc32(file)) for block in blocks for file in self.read(block)])
        return made[:, 0], made[:, 1]

    def are_in(self, copy: Catalog, numbers: ListNumbers) -> bool:
        """Tell if a copy has these samples and no other ones."""
        # Every file that loses its EXIF had its own checksum when it was read.
        return len(copy) == len(numbers) and (
            self._drops_exif or copy.digest(range(len(copy))) == self.source.digest(numbers)
        )


def _without_exif(key: str, content: bytes, checksum: int) -> bytes:
    require(zlib.crc32(content) == checksum, f"{key}: its image is another one than was indexed")
    try:
        return remove_exif(content)
    except ImageError as error:
        raise UserError(f"{key}: {error}; 'data.read_from.exif: keep' copies it is") from None


def _kept(path: Path, files: _Files, numbers: ListNumbers) -> TarIndex | None:
    """Index a tar that is there already; None where there is none, it is torn, or holds other samples than these."""
    try:
        index = index_tar(path)
    except UserError:
        return None
    if index.keys != files.source.texts("key").gather(numbers):
        return None
    found = zip((index.sizes, checksums(index)), files.sizes_and_checksums(numbers), strict=True)
    return index if all(np.array_equal(*values) for values in found) else None


def _remove_others(folder: Path, names: Container[str]) -> None:
    """Remove what interrupted attempts left: tars and columns of a longer list, and those half written."""
    for pattern in ("images-*.tar", f"{TRAIN}-*.h5", ".images-*.tar.*", f".{TRAIN}-*.h5.*"):
        for path in folder.glob(pattern):
            if path.name not in names:
                guarded_writes.remove(path)


def _samples(files: _Files, numbers: ListNumbers, done: int, advance: Callable[[int], None]) -> Iterator[Sample]:
    """Yield the samples of one tar; done: number of those in the tars before it."""
    keys, labels, captions = (files.source.values_of(name, None) for name in ("key", "label", "caption"))
    for block in split_into_blocks(numbers, SAMPLES_AT_ONCE):
        rows = zip(keys(block), files.read(block), labels(block), captions(block), strict=True)
        for key, image, label, caption in rows:
            yield Sample(key, image, _extension(image), label, caption)
        done += len(block)
        advance(done)


def _extension(image: bytes) -> str:
    name = str(Image.open(io.BytesIO(image)).format)
    return EXTENSIONS.get(name, name.lower())


def _write_part(folder: Path, number: int, indices: dict[int, TarIndex]) -> CatalogPart:
    """Write the columns of some tars."""
    name, columns = f"{TRAIN}-{number:03d}", columns_of(indices)
    write_columns(folder / f"{name}.h5", columns)
    return CatalogPart(name, f"{name}.h5", len(columns["key"]), digest(columns["key"]))
