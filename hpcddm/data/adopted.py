"""Index of a tar that is adopted where it lies: its samples by the collection's layout, and those that are broken."""

import json
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from hpcddm.data.layout import IMAGES, Field, Layout
from hpcddm.data.picture_kinds import HEAD_BYTES, is_junk, is_read
from hpcddm.data.pictures import PictureError
from hpcddm.data.strays import NO_IMAGE, Stray, further, item_of, unknown_pictures, unnamed
from hpcddm.data.tar_headers import LARGEST_READ, Kind, Member, TarHeaders
from hpcddm.data.tar_index import TarIndex, split_name
from hpcddm.data.texts import cleaned, decoded
from hpcddm.errors import UserError
from hpcddm.runs.passed_over import Item, escaped

LONGEST_KEY = 1000
"""Most bytes of a key."""


@dataclass(frozen=True)
class AdoptedTar:
    """Samples of one tar that can be used, and those that are broken.

    metadata: of every sample, entries of the JSON object beside its image, with `width` and `height` of a picture that
    was decoded; entries: names of all entries that there are, kept or not; broken: (key, reason) of the others;
    passed_over: the members that belong to none of these.
    """

    index: TarIndex
    metadata: list[dict[str, Any]]
    entries: frozenset[str]
    broken: list[tuple[str, str]]
    passed_over: list[Item]


def values_of(tars: Sequence[AdoptedTar], names: Iterable[str]) -> dict[str, list[object]]:
    """Return values of the samples of several tars by name, with label and caption; None where a sample has none."""
    columns: dict[str, list[object]] = {
        name: [values.get(name) for tar in tars for values in tar.metadata] for name in names
    }
    for name in ("label", "caption"):
        columns[name] = []
    for index in (tar.index for tar in tars):
        nothing = [None] * len(index.keys)
        columns["label"] += nothing if index.labels is None else index.labels.tolist()
        columns["caption"] += nothing if index.captions is None else index.captions
    return columns


@dataclass(frozen=True)
class SourceTar:
    """A tar as it lies in a collection, with the samples of one split.

    layout: roles of the members of a sample; prefix: stands before the keys of the members in those of the samples;
    is_of_split: tells by its key whether a sample belongs to the split; has_digest: true where its SHA-256 is wanted;
    folder: that of the collection, to which `name` is relative; collection: its name, where it has one.
    """

    path: Path
    layout: Layout
    prefix: str
    is_of_split: Callable[[str], bool]
    has_digest: bool
    folder: Path
    collection: str | None

    @property
    def name(self) -> str:
        """Path in the collection's folder: what may be told to others."""
        return self.path.relative_to(self.folder).as_posix()

    def index(self, check: Callable[[bytes], tuple[int, int]], names: Collection[str]) -> AdoptedTar:
        """Find the samples of the split as `index_adopted` does."""
        return index_adopted(self.path, self.layout, self.prefix, check, names, self.is_of_split)


class _BrokenSample(Exception):  # noqa: N818
    """Raised with the reason for which a sample cannot be used."""


class _Sample(NamedTuple):
    """Members of one key that stand together: the images, what the others contain, and those too large to be read.

    contents, oversized: by extension; unnamed: (name, extension) of pictures whose extension the layout has not.
    """

    key: str
    images: list[Member]
    contents: dict[str, bytes]
    oversized: list[str]
    unnamed: list[tuple[str, str]]


class _Row(NamedTuple):
    """A sample: place of its image in the tar, class, caption, entries of its JSON object."""

    key: str
    offset: int
    size: int
    crc32: int
    label: int | None
    caption: str | None
    metadata: dict[str, Any]


def index_adopted(
    path: Path,
    layout: Layout,
    prefix: str = "",
    check: Callable[[bytes], tuple[int, int]] | None = None,
    names: Collection[str] = (),
    is_wanted: Callable[[str], bool] = lambda key: True,
) -> AdoptedTar:
    """Find the samples of a tar that somebody else has written.

    prefix: what stands before the member's key in the key of a sample; check: called with every picture's file, returns
    its width and height in pixels or raises `PictureError`; without it no picture is read; names: entries of the JSON
    object that are kept, which takes more memory than all else; is_wanted: tells by the key of a sample whether it
    counts, and its picture is read. A sample is broken that has no image or two, a value that cannot be read, or lacks
    one that others of the tar have; so is each picture that has no sample, for its extension is none of the layout.
    Several samples may have one key. All other members are passed over; those without a key belong to the split that
    their name does.
    Raises `UserError` naming a tar that is torn or compressed: nothing tells how many samples it has lost.
    """
    rows: list[_Row] = []
    broken: list[tuple[str, str]] = []
    strays: list[Stray] = []
    keys: set[str] = set()
    passed_over: list[Item] = []
    entries = {"width", "height"} if check is not None else set[str]()
    with open_tar(path) as file:
        for sample in _samples(path, layout, strays):
            if not is_wanted(prefix + sample.key):
                continue
            keys.add(sample.key)
            key = escaped(prefix + sample.key)
            if not sample.images:
                broken += [(key, reason) for reason in map(unnamed, sample.unnamed)] or [(key, NO_IMAGE)]
                continue
            passed_over += [further(*picture) for picture in sample.unnamed]
            try:
                row = _row(file.fileno(), sample, layout, prefix, check)
                entries.update(row.metadata)
                rows.append(row._replace(metadata={name: row.metadata.get(name) for name in names}))
            except _BrokenSample as reason:
                broken.append((key, str(reason)))
        strays = [stray for stray in strays if is_wanted(prefix + (stray.key or stray.member.name))]
        broken = _told_apart(rows, broken, unknown_pictures(file.fileno(), strays, broken, prefix))
        passed_over += [item_of(file.fileno(), stray, keys, layout) for stray in strays]
    adopted = _complete(path, rows, frozenset(entries), broken, is_read=check is not None)
    return replace(adopted, passed_over=passed_over)


def _told_apart(rows: list[_Row], broken: list[tuple[str, str]], unknown: dict[str, str]) -> list[tuple[str, str]]:
    """Return the broken samples, and say so of those without an image of which the tar has one elsewhere.

    unknown: as from `unknown_pictures`.
    """
    if all(reason != NO_IMAGE for _, reason in broken):
        return broken
    elsewhere = {row.key for row in rows} | {key for key, reason in broken if reason != NO_IMAGE}
    apart = "its members do not stand together in the tar"

    def reason_of(key: str, reason: str) -> str:
        return reason if reason != NO_IMAGE else apart if key in elsewhere else unknown.get(key, NO_IMAGE)

    return [(key, reason_of(key, reason)) for key, reason in broken]


def _row(
    descriptor: int, sample: _Sample, layout: Layout, prefix: str, check: Callable[[bytes], tuple[int, int]] | None
) -> _Row:
    """Read a sample; raises `_BrokenSample`."""
    image = _only_image(sample)
    if sample.oversized:
        raise _BrokenSample(f"its {sample.oversized[0]} has more than {LARGEST_READ} bytes")
    label, caption = _label(sample, layout.label), _caption(sample, layout.caption)
    metadata, checksum = _json(sample, layout.metadata), 0
    if check is not None:
        content = os.pread(descriptor, image.size, image.offset)
        checksum = zlib.crc32(content)
        try:
            metadata["width"], metadata["height"] = check(content)
        except PictureError as error:
            raise _BrokenSample(str(error)) from None
    return _Row(prefix + sample.key, image.offset, image.size, checksum, label, caption, metadata)


def _complete(
    path: Path, rows: list[_Row], entries: frozenset[str], broken: list[tuple[str, str]], is_read: bool
) -> AdoptedTar:
    """Index the rows; where some have a class or a caption, those without are broken."""
    has_labels, has_captions = any(row.label is not None for row in rows), any(row.caption is not None for row in rows)
    whole = []
    for row in rows:
        if has_labels and row.label is None:
            broken.append((row.key, "no class, others have one"))
        elif has_captions and row.caption is None:
            broken.append((row.key, "no caption, others have one"))
        else:
            whole.append(row)
    index = TarIndex(
        path,
        [row.key for row in whole],
        np.array([row.offset for row in whole], np.uint64),
        np.array([row.size for row in whole], np.uint32),
        np.array([row.label for row in whole], np.int32) if has_labels else None,
        [row.caption or "" for row in whole] if has_captions else None,
        np.array([row.crc32 for row in whole], np.uint32) if is_read else None,
    )
    return AdoptedTar(index, [row.metadata for row in whole], entries, broken, [])


def open_tar(path: Path) -> BinaryIO:
    """Open a tar for reading; raises `UserError` naming it."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def _samples(path: Path, layout: Layout, strays: list[Stray]) -> Iterator[_Sample]:
    """Yield the samples of a tar: as for WebDataset, the members of one key that stand one behind the other.

    Where an extension comes again, so does the key, and another sample begins. strays: gets all other members but
    folders.
    """
    wanted, formats = layout.images | layout.extensions, {name.rpartition(".")[2] for name in layout.images}
    with TarHeaders(path, layout.needs_end) as members:
        sample: _Sample | None = None
        seen: set[str] = set()
        for member in members:
            key, extension = split_name(member.name)
            is_bare = not key and _is_bare_picture(members, member, layout)
            key = member.name if is_bare else key
            is_known = is_bare or extension in wanted or extension.rpartition(".")[2] in formats
            if not is_known or member.kind not in (Kind.FILE, Kind.SPARSE) or is_junk(member.name):
                if member.kind is not Kind.DIRECTORY:
                    strays.append(Stray(key, extension, member))
                continue
            if sample is None or key != sample.key or extension in seen:
                if sample is not None:
                    yield sample
                sample, seen = _Sample(key, [], {}, [], []), set()
            seen.add(extension)
            if is_bare or extension in layout.images:
                sample.images.append(member)
            elif extension not in wanted:
                sample.unnamed.append((member.name, extension))
            elif member.size > LARGEST_READ:
                sample.oversized.append(extension)
            else:
                sample.contents[extension] = members.read(member)
        if sample is not None:
            yield sample


def _is_bare_picture(members: TarHeaders, member: Member, layout: Layout) -> bool:
    """Tell by its first bytes if a member without an extension is an image, where the layout names no extensions."""
    if layout.images != IMAGES or member.kind is not Kind.FILE or "." in os.path.basename(member.name):
        return False
    return is_read(members.head(member, HEAD_BYTES))


def _only_image(sample: _Sample) -> Member:
    if len(sample.images) > 1:
        raise _BrokenSample(f"{len(sample.images)} images")
    (image,) = sample.images
    if image.kind is Kind.SPARSE:
        raise _BrokenSample("stored as a sparse file")
    if not 0 < image.size < 1 << 32:
        raise _BrokenSample(f"{image.size} bytes, which is no image")
    if len(sample.key.encode(errors="surrogateescape")) > LONGEST_KEY:
        raise _BrokenSample(f"its key is longer than {LONGEST_KEY} bytes")
    if not _is_utf8(sample.key):
        raise _BrokenSample("its key is no UTF-8")
    return image


def _label(sample: _Sample, place: Field | None) -> int | None:
    value = _value(sample, place)
    try:
        # Of JSON, a fraction or a truth value is no number of a class; Python alone takes 1_0 for 10.
        if isinstance(value, float | bool) or "_" in str(value):
            raise ValueError
        label = None if value is None else int(np.int32(int(value)))
    except (TypeError, ValueError, OverflowError):
        raise _BrokenSample(f"its class is no number ({str(value)[:40]!r})") from None
    if label is not None and label < 0:
        raise _BrokenSample(f"its class is {label}, they are numbered from 0")
    return label


def _caption(sample: _Sample, place: Field | None) -> str | None:
    value = _value(sample, place)
    if value is not None and not isinstance(value, str):
        raise _BrokenSample(f"its caption is no text ({str(value)[:40]!r})")
    # JSON can say half of a character that takes two.
    if not _is_utf8(value or ""):
        raise _BrokenSample("its caption is no UTF-8")
    return value


def _value(sample: _Sample, place: Field | None) -> Any:
    if place is None or place.extension not in sample.contents:
        return None
    if place.entry is not None:
        value = _json(sample, place.extension).get(place.entry)
        return cleaned(value) if isinstance(value, str) else value
    try:
        return decoded(sample.contents[place.extension])
    except UnicodeDecodeError:
        raise _BrokenSample(f"its {place.extension} is no UTF-8") from None
    except ValueError as error:
        raise _BrokenSample(f"its {place.extension} has {error}") from None


def _json(sample: _Sample, extension: str) -> dict[str, Any]:
    try:
        values = json.loads(sample.contents.get(extension, b"{}"))
    except (ValueError, RecursionError):
        raise _BrokenSample(f"its {extension} is no JSON") from None
    if not isinstance(values, dict):
        raise _BrokenSample(f"its {extension} is no JSON object")
    return values


def _is_utf8(text: str) -> bool:
    """Tell if a text can be encoded; bytes of a name that are not UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
