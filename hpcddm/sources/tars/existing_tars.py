"""Index of a tar that is used in place: its samples by the collection's layout, and its broken samples."""

import json
import os
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hpcddm.data.image_decoding import ImageError
from hpcddm.data.tars.tar_headers import MAX_READ_BYTES, Kind, Member, TarHeaders
from hpcddm.data.tars.tar_index import split_name
from hpcddm.data.tars.tar_layout import IMAGES, TarLayout, ValueLocation
from hpcddm.errors import require
from hpcddm.files.junk import is_junk
from hpcddm.files.text_files import decode, normalise
from hpcddm.runs.passed_over import PassedOverItem, escape_name
from hpcddm.sources.file_kinds import HEAD_BYTES, is_readable_image
from hpcddm.sources.source_files import (
    IndexedFile,
    IndexRow,
    PictureCheck,
    SourceFile,
    UnusableSample,
    caption_of,
    check_key,
    check_size,
    complete_index,
    label_of,
)
from hpcddm.sources.tars.unused_members import (
    NO_IMAGE,
    UnusedMember,
    further_member_item,
    images_with_unknown_extension,
    item_of,
    unknown_extension_reason,
)

APART = "its members are not next to each other in the tar"
"""Reason why a sample is broken whose image is elsewhere in the tar."""


@dataclass(frozen=True)
class SourceTar(SourceFile):
    """A tar of a collection, with the samples of one split.

    layout: roles of the members of a sample.
    """

    layout: TarLayout

    def index(self, check: PictureCheck | None = None, names: Collection[str] = ()) -> IndexedFile:
        """Find the samples of a tar that another program has written; arguments and errors are those of the base.

        names: entries of the JSON object that are kept. A sample is broken that has no image or two, a value that
        cannot be read, or lacks one that others of the tar have; so is each picture that has no sample, for its
        extension is none of the layout. Several samples may have one key. All other members are passed over; those
        without a key belong to the split that their name does.
        """
        rows: list[IndexRow] = []
        broken: list[tuple[str, str]] = []
        strays: list[UnusedMember] = []
        keys: set[str] = set()
        passed_over: list[PassedOverItem] = []
        entries = {"width", "height"} if check is not None else set[str]()
        with TarHeaders(self.path, self.layout.require_end) as members:
            for sample in _samples(members, self.layout, strays):
                if not self.is_of_split(self.prefix + sample.key):
                    continue
                keys.add(sample.key)
                key = escape_name(self.prefix + sample.key)
                if not sample.images:
                    reasons = [*map(unknown_extension_reason, sample.unnamed)] or [NO_IMAGE]
                    broken += [(key, reason) for reason in reasons]
                    continue
                passed_over += [further_member_item(*picture) for picture in sample.unnamed]
                try:
                    row = _row(members, sample, self.layout, self.prefix, check)
                    entries.update(row.metadata)
                    rows.append(row._replace(metadata={name: row.metadata.get(name) for name in names}))
                except (UnusableSample, ImageError) as reason:
                    broken.append((key, str(reason)))
            strays = [stray for stray in strays if self.is_of_split(self.prefix + (stray.key or stray.member.name))]
            unknown = images_with_unknown_extension(members, strays, broken, self.prefix)
            passed_over += [item_of(members, stray, keys, self.layout) for stray in strays]
        elsewhere = {row.key for row in rows} | {key for key, reason in broken if reason != NO_IMAGE}
        unknown |= dict.fromkeys(elsewhere, APART)
        broken = [(key, unknown.get(key, reason) if reason == NO_IMAGE else reason) for key, reason in broken]
        adopted = complete_index(self.path, rows, frozenset(entries), broken, is_read=check is not None)
        return replace(adopted, passed_over=passed_over)


class _Sample(NamedTuple):
    """Consecutive members of one key: the images, what the others contain, and those too large to be read.

    contents, oversized: by extension; unnamed: (name, extension) of pictures whose extension the layout has not.
    """

    key: str
    images: list[Member]
    contents: dict[str, bytes]
    oversized: list[str]
    unnamed: list[tuple[str, str]]


def _row(members: TarHeaders, sample: _Sample, layout: TarLayout, prefix: str, check: PictureCheck | None) -> IndexRow:
    """Read a sample; raises `UnusableSample`, or `ImageError` for a picture that cannot be used."""
    image = _only_image(sample)
    if sample.oversized:
        raise UnusableSample(f"its {sample.oversized[0]} has more than {MAX_READ_BYTES} bytes")
    label, caption = label_of(_value(sample, layout.label)), caption_of(_value(sample, layout.caption))
    metadata, checksum = _json(sample, layout.metadata), 0
    if check is not None:
        content = members.content(image)
        checksum = zlib.crc32(content)
        metadata["width"], metadata["height"] = check(content)
    return IndexRow(prefix + sample.key, image.offset, image.size, checksum, label, caption, metadata)


def _samples(members: TarHeaders, layout: TarLayout, strays: list[UnusedMember]) -> Iterator[_Sample]:
    """Yield the samples of a tar: as for WebDataset, the members of one key that stand one behind the other.

    Where an extension comes again, so does the key, and another sample begins. strays: gets all other members but
    folders.
    """
    wanted, formats = layout.images | layout.extensions, {name.rpartition(".")[2] for name in layout.images}
    sample: _Sample | None = None
    seen: set[str] = set()
    for member in members:
        key, extension = split_name(member.name)
        is_bare = not key and _is_bare_image(members, member, layout)
        key = member.name if is_bare else key
        is_known = is_bare or extension in wanted or extension.rpartition(".")[2] in formats
        if not is_known or member.kind not in (Kind.FILE, Kind.SPARSE) or is_junk(member.name):
            if member.kind is not Kind.DIRECTORY:
                strays.append(UnusedMember(key, extension, member))
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
        elif member.size > MAX_READ_BYTES:
            sample.oversized.append(extension)
        else:
            sample.contents[extension] = members.read(member)
    if sample is not None:
        yield sample


def _is_bare_image(members: TarHeaders, member: Member, layout: TarLayout) -> bool:
    """Tell by its first bytes if a member without an extension is an image, where the layout names no extensions."""
    if layout.images != IMAGES or member.kind is not Kind.FILE or "." in os.path.basename(member.name):
        return False
    return is_readable_image(members.head(member, HEAD_BYTES))


def _only_image(sample: _Sample) -> Member:
    require(len(sample.images) <= 1, f"{len(sample.images)} images", UnusableSample)
    (image,) = sample.images
    require(image.kind is not Kind.SPARSE, "stored as a sparse file", UnusableSample)
    check_size(image.size)
    check_key(sample.key)
    return image


def _value(sample: _Sample, place: ValueLocation | None) -> Any:
    if place is None or place.extension not in sample.contents:
        return None
    if place.entry is not None:
        value = _json(sample, place.extension).get(place.entry)
        return normalise(value) if isinstance(value, str) else value
    try:
        return decode(sample.contents[place.extension])
    except UnicodeDecodeError:
        raise UnusableSample(f"its {place.extension} is not UTF-8") from None
    except ValueError as error:
        raise UnusableSample(f"its {place.extension} has {error}") from None


def _json(sample: _Sample, extension: str) -> dict[str, Any]:
    try:
        values = json.loads(sample.contents.get(extension, b"{}"))
    except (ValueError, RecursionError):
        raise UnusableSample(f"its {extension} is not JSON") from None
    if not isinstance(values, dict):
        raise UnusableSample(f"its {extension} is not a JSON object")
    return values
