"""Index of a WebDataset tar that the run has written: offset of each sample's image, class and caption."""

import os
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

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
    offsets, sizes = array("Q"), array("I")
    label_of: dict[str, int] = {}
    caption_of: dict[str, str] = {}
    with TarHeaders(path) as members:
        for member in members:
            key, extension = split_name(member.name)
            if extension in IMAGES and member.kind in (Kind.FILE, Kind.SPARSE):
                _check_image(path, member)
                keys.append(key)
                offsets.append(member.offset)
                sizes.append(member.size)
            elif extension in (LABEL, CAPTION) and member.kind is Kind.FILE:
                content = members.read(member)
                try:
                    if extension == LABEL:
                        label_of[key] = int(np.int32(int(content)))
                    else:
                        caption_of[key] = content.decode()
                except (ValueError, OverflowError) as error:
                    raise UserError(f"{path}: a torn or foreign tar ({member.name}: {error})") from None
    twice = next((key for key, count in Counter(keys).items() if count > 1), None)
    require(twice is None, f"{path}: sample {twice} has two images")
    labels = _column(path, keys, label_of, "class")
    return TarIndex(
        path,
        keys,
        np.array(offsets, dtype=np.uint64),
        np.array(sizes, dtype=np.uint32),
        labels=None if labels is None else np.array(labels, dtype=np.int32),
        captions=_column(path, keys, caption_of, "caption"),
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


def _column(path: Path, keys: list[str], values: Mapping[str, V], what: str) -> list[V] | None:
    """Return the value of every sample; None if no sample has one; raise `UserError` if only some have values."""
    if values.keys().isdisjoint(keys):
        return None
    lacking = next((key for key in keys if key not in values), None)
    require(lacking is None, f"{path}: sample {lacking} has no {what}, others have one")
    return [values[key] for key in keys]


def _check_image(path: Path, member: Member) -> None:
    if member.kind is Kind.SPARSE:
        raise UserError(f"{path}: {member.name} is stored as a sparse file; make the tar again without --sparse")
    require(member.size < 1 << 32, f"{path}: {member.name} has {member.size} bytes, which is not an image")
