"""Index of a WebDataset tar that the run has written: offset of each sample's image, class and caption."""

import os
import zlib
from array import array
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Int32, UInt32, UInt64

from hpcddm.data.tars.record import Record
from hpcddm.data.tars.tar_headers import Kind, Member, TarHeaders
from hpcddm.data.tars.tar_layout import CAPTION, IMAGES, LABEL
from hpcddm.errors import UserError, require

V = TypeVar("V")


@dataclass(frozen=True)
class TarIndex:
    """Samples of one tar in its order.

    Attributes:
        path: The tar.
        keys: N keys.
        offsets: Offset of each image's file in the tar, in bytes, (N,).
        sizes: Size of each image's file in bytes, (N,).
        labels: Class numbers, (N,); None for a tar without classes.
        captions: N captions; None for a tar without captions.
        crc32: CRC-32 of each image's file, (N,); None if the files have not been read.
        files: Places of N files for `Catalog.source_file`; None for images in a tar.
    """

    path: Path
    keys: list[str]
    offsets: UInt64[np.ndarray, " n"]
    sizes: UInt32[np.ndarray, " n"]
    labels: Int32[np.ndarray, " n"] | None
    captions: list[str] | None
    crc32: UInt32[np.ndarray, " n"] | None = None
    files: list[str] | None = None

    def select(self, is_taken: Sequence[bool]) -> "TarIndex":
        """Return the index of some of the samples.

        Args:
            is_taken: For each of the N samples, True to keep it.
        """
        rows = np.flatnonzero(np.asarray(is_taken, dtype=bool))
        keys = [self.keys[row] for row in rows]
        captions = None if self.captions is None else [self.captions[row] for row in rows]
        files = None if self.files is None else [self.files[row] for row in rows]
        arrays = (self.labels, self.crc32)
        labels, checksums = (None if values is None else values[rows] for values in arrays)
        return TarIndex(self.path, keys, self.offsets[rows], self.sizes[rows], labels, captions, checksums, files)


def index_tar(path: Path) -> TarIndex:
    """Index the samples of a tar; links and members other than images, classes and captions are ignored.

    Args:
        path: The tar.

    Raises:
        UserError: The tar is damaged, an image is stored as a sparse file, a sample has two images, or only some
            samples have a class or a caption. The message names the tar and the sample.
    """
    keys: list[str] = []
    offsets, sizes, labels = array("Q"), array("I"), array("i")
    captions: list[str] = []
    label_of, caption_of = _Values[int]("class", labels, 0), _Values[str]("caption", captions, "")
    with TarHeaders(path) as members:
        for member in members:
            key, extension = split_name(member.name)
            if extension in IMAGES and member.kind in (Kind.FILE, Kind.SPARSE):
                _check_image(path, member)
                keys.append(key)
                offsets.append(member.offset)
                sizes.append(member.size)
                label_of.begin(key)
                caption_of.begin(key)
            elif extension in (LABEL, CAPTION) and member.kind is Kind.FILE:
                content = members.read(member)
                try:
                    if extension == LABEL:
                        label_of.set(key, int(np.int32(int(content))))
                    else:
                        caption_of.set(key, content.decode())
                except (ValueError, OverflowError) as error:
                    raise UserError(f"{path}: a torn or foreign tar ({member.name}: {error})") from None
    twice = _first_twice(keys)
    require(twice is None, f"{path}: sample {twice} has two images")
    return TarIndex(
        path,
        keys,
        np.array(offsets, dtype=np.uint64),
        np.array(sizes, dtype=np.uint32),
        labels=np.array(labels, dtype=np.int32) if label_of.are_there(path, keys) else None,
        captions=captions if caption_of.are_there(path, keys) else None,
    )


def columns_of(indices: Mapping[int, TarIndex]) -> dict[str, np.ndarray | list[str]]:
    """Return the columns of consecutive tars: tar, offset, size, crc32, key, and if present label, caption and file.

    Args:
        indices: Indices of the tars by their numbers in the split; all or none have classes, likewise captions.

    Returns:
        Columns by name, each with the N samples of all tars.
    """
    parts = list(indices.values())
    columns: dict[str, np.ndarray | list[str]] = {
        "tar": np.repeat(np.array(list(indices), dtype=np.uint32), [len(part.keys) for part in parts]),
        "offset": np.concatenate([part.offsets for part in parts]),
        "size": np.concatenate([part.sizes for part in parts]),
        "crc32": np.concatenate([checksums(part) for part in parts]),
        "key": [key for part in parts for key in part.keys],
    }
    if labels := [part.labels for part in parts if part.labels is not None]:
        columns["label"] = np.concatenate(labels)
    if captions := [part.captions for part in parts if part.captions is not None]:
        columns["caption"] = [caption for part in captions for caption in part]
    if files := [part.files for part in parts if part.files is not None]:
        columns["file"] = [file for part in files for file in part]
    return columns


def index_pictures(records: Iterable[Record]) -> TarIndex:
    """Index pictures that are files of their own, read where they are.

    Args:
        records: Records with the places and contents of their files; all or none have classes, likewise captions.
    """
    keys, files = list[str](), list[str]()
    labels, captions = list[int | None](), list[str | None]()
    sizes, crc32 = array("I"), array("I")
    for record in records:
        keys.append(record.key)
        files.append(str(record.file))
        labels.append(record.label)
        captions.append(record.caption)
        sizes.append(len(record.content or b""))
        crc32.append(zlib.crc32(record.content or b""))
    return TarIndex(
        Path(),
        keys,
        np.zeros(len(keys), np.uint64),
        np.array(sizes, np.uint32),
        labels=np.array(labels, np.int32) if keys and None not in labels else None,
        captions=[str(caption) for caption in captions] if keys and None not in captions else None,
        crc32=np.array(crc32, np.uint32),
        files=files,
    )


def checksums(index: TarIndex) -> UInt32[np.ndarray, " n"]:
    """Return the CRC-32 of every image's file, (N,); compute it if the index does not have it."""
    if index.crc32 is not None:
        return index.crc32
    with open(index.path, "rb") as file:
        places = zip(index.offsets.tolist(), index.sizes.tolist(), strict=True)
        return np.array([zlib.crc32(os.pread(file.fileno(), size, offset)) for offset, size in places], dtype=np.uint32)


def split_name(name: str) -> tuple[str, str]:
    """Split a member's name into key and extension at the first dot of its base name, as WebDataset does.

    Args:
        name: Path of the member in the tar.

    Returns:
        Key and extension in lower case; two empty texts for a name that does not belong to a sample.

    Examples:
        >>> split_name("train/000017.JPG")
        ('train/000017', 'jpg')
    """
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return (folder + slash + stem, extension.lower()) if stem and extension else ("", "")


class _Values(Generic[V]):
    """Rows of one column of a tar whose members may come in any order.

    Args:
        what: Name of the value, for errors.
        rows: List that receives one value per sample.
        filler: Value of rows that are not known yet.
    """

    def __init__(self, what: str, rows: MutableSequence[V], filler: V) -> None:
        self._what, self._rows, self._filler = what, rows, filler
        self._known, self._last = bytearray(), ""
        # In the order that WebDataset prescribes, nothing waits but for the image behind it.
        self._waiting: dict[str, V] = {}

    def begin(self, key: str) -> None:
        """Begin the row of a sample after its image."""
        self._known.append(key in self._waiting)
        self._rows.append(self._waiting.pop(key, self._filler))
        self._last = key

    def set(self, key: str, value: V) -> None:
        """Set the value of a sample whose row has begun or will begin."""
        if key == self._last:
            self._rows[-1], self._known[-1] = value, True
        else:
            self._waiting[key] = value

    def are_there(self, path: Path, keys: list[str]) -> bool:
        """Return True if all samples have values, False if none has; raise `UserError` if only some have values."""
        for row, key in enumerate(keys if self._waiting else ()):
            if key in self._waiting:
                self._rows[row], self._known[row] = self._waiting[key], True
        if not any(self._known):
            return False
        lacking = self._known.find(False)
        require(lacking < 0, f"{path}: sample {keys[lacking]} has no {self._what}, others have one")
        return True


def _check_image(path: Path, member: Member) -> None:
    if member.kind is Kind.SPARSE:
        raise UserError(f"{path}: {member.name} is stored as a sparse file; make the tar again without --sparse")
    require(member.size < 1 << 32, f"{path}: {member.name} has {member.size} bytes, which is not an image")


def _first_twice(keys: list[str]) -> str | None:
    """Return the first repeated key; hashes detect repeated keys with 16 bytes of memory per key."""
    hashes = np.sort(np.fromiter(map(hash, keys), np.int64, len(keys)))
    if not (hashes[1:] == hashes[:-1]).any():
        return None
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    return None
