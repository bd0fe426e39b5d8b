"""Members of a tar that belong to no sample, by their names or kinds: for which reason each is passed over."""

import os
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from hpcddm.data.layout import Layout
from hpcddm.data.picture_kinds import HEAD_BYTES, is_junk, is_read, other_format
from hpcddm.data.tar_headers import Kind, Member
from hpcddm.runs.passed_over import JUNK, Item, escaped

LONGEST_EXTENSION = 20
"""Most characters of an extension that a reason names."""
OTHER_KINDS = {
    Kind.HARD_LINK: "hard links, which 'tar --hard-dereference' writes as files",
    Kind.SYMBOLIC_LINK: "symbolic links, which 'tar --dereference' writes as files",
    Kind.DEVICE: "devices and pipes",
    Kind.OTHER: "members of an unknown kind",
}
"""Reasons for which members that are no files are passed over."""
NO_IMAGE = "no image"
"""Reason for which a sample is broken unless a picture of its key lies elsewhere in the tar."""


class Stray(NamedTuple):
    """Member that belongs to no sample by its name, or is not a file; key and extension: parts of its name."""

    key: str
    extension: str
    member: Member


def item_of(descriptor: int, stray: Stray, keys: Container[str], layout: Layout) -> Item:
    """Say why a member is passed over; keys: those of the samples, broken ones among them."""
    member, extension = stray.member, escaped(stray.extension)[:LONGEST_EXTENSION]
    name = escaped(member.name)
    if is_junk(member.name):
        return Item(name, JUNK)
    if member.kind not in (Kind.FILE, Kind.SPARSE):
        is_value = stray.extension in layout.extensions
        is_lost = is_value or (stray.extension in layout.images and stray.key not in keys)
        return Item(name, OTHER_KINDS[member.kind], is_broken=is_lost and member.kind is not Kind.DEVICE)
    if stray.key in keys:
        return further(member.name, stray.extension)
    head = os.pread(descriptor, min(member.size, HEAD_BYTES), member.offset)
    if is_read(head):
        other = f"pictures .{extension}, which data.source.image does not name"
        return Item(name, other if extension else "pictures whose names have no extension, or begin with a dot", True)
    unread = other_format(head)
    if unread:
        return Item(name, f"pictures in {unread}", True)
    return Item(name, f"files .{extension}" if extension else "files without extension")


def further(name: str, extension: str) -> Item:
    """Name a member of a sample for which the layout has no use."""
    return Item(escaped(name), f"further members of samples, .{escaped(extension)[:LONGEST_EXTENSION]}")


def unknown_pictures(
    descriptor: int, strays: Iterable[Stray], broken: Sequence[tuple[str, str]], prefix: str
) -> dict[str, str]:
    """Return, by key, the reason why a sample without an image lacks it, where its picture has an unknown extension."""
    lacking = {key for key, reason in broken if reason == NO_IMAGE}
    mine = [stray for stray in strays if lacking and escaped(prefix + stray.key) in lacking]
    return {
        escaped(prefix + stray.key): unnamed((stray.member.name, stray.extension))
        for stray in mine
        if stray.member.kind is Kind.FILE and is_read(os.pread(descriptor, HEAD_BYTES, stray.member.offset))
    }


def unnamed(picture: tuple[str, str]) -> str:
    """Return the reason for which a picture without a sample is broken; picture: its name and extension."""
    name, extension = picture
    said = "a name is split at its first dot" if "." in extension else "data.source.image names others"
    return f"no image: {escaped(name)} has the extension {escaped(extension)} ({said}); see data.source.image"
