"""Members of a tar that belong to no sample, and the reason, by name or kind, for skipping each."""

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from hpcddm.data.tars.tar_headers import Kind, Member, TarHeaders
from hpcddm.data.tars.tar_layout import TarLayout
from hpcddm.files.junk import is_junk
from hpcddm.runs.passed_over import JUNK, PassedOverItem, escape_name
from hpcddm.sources.file_kinds import HEAD_BYTES, is_readable_image, unreadable_format

MAX_EXTENSION_LENGTH = 20
"""Most characters of an extension that a reason names."""
OTHER_KINDS = {
    Kind.HARD_LINK: "hard links, which 'tar --hard-dereference' writes as files",
    Kind.SYMBOLIC_LINK: "symbolic links, which 'tar --dereference' writes as files",
    Kind.DEVICE: "devices and pipes",
    Kind.OTHER: "members of an unknown kind",
}
"""Reasons for skipping members that are not files."""
NO_IMAGE = "no image"
"""Reason why a sample is broken, unless a picture of its key is elsewhere in the tar."""


class UnusedMember(NamedTuple):
    """Member that belongs to no sample by its name, or is not a file; key and extension: parts of its name."""

    key: str
    extension: str
    member: Member


def item_of(members: TarHeaders, stray: UnusedMember, keys: Container[str], layout: TarLayout) -> PassedOverItem:
    """Return the member with the reason for skipping it; keys: keys of all samples, also broken ones."""
    member, extension = stray.member, escape_name(stray.extension)[:MAX_EXTENSION_LENGTH]
    name = escape_name(member.name)
    if is_junk(member.name):
        return PassedOverItem(name, JUNK)
    if member.kind not in (Kind.FILE, Kind.SPARSE):
        is_value = stray.extension in layout.extensions
        is_lost = is_value or (stray.extension in layout.images and stray.key not in keys)
        return PassedOverItem(name, OTHER_KINDS[member.kind], is_broken=is_lost and member.kind is not Kind.DEVICE)
    if stray.key in keys:
        return further_member_item(member.name, stray.extension)
    head = members.head(member, HEAD_BYTES)
    if is_readable_image(head):
        other = f"pictures .{extension}, which data.source.image does not name"
        return PassedOverItem(
            name, other if extension else "pictures whose names have no extension, or begin with a dot", True
        )
    unread = unreadable_format(head)
    if unread:
        return PassedOverItem(name, f"pictures in {unread}", True)
    return PassedOverItem(name, f"files .{extension}" if extension else "files without extension")


def further_member_item(name: str, extension: str) -> PassedOverItem:
    """Return the item for a member of a sample that the layout does not use."""
    return PassedOverItem(
        escape_name(name), f"further members of samples, .{escape_name(extension)[:MAX_EXTENSION_LENGTH]}"
    )


def images_with_unknown_extension(
    members: TarHeaders, strays: Iterable[UnusedMember], broken: Sequence[tuple[str, str]], prefix: str
) -> dict[str, str]:
    """Return, by key, the reason why a sample without an image lacks it, where its picture has an unknown extension."""
    lacking = {key for key, reason in broken if reason == NO_IMAGE}
    mine = [stray for stray in strays if lacking and escape_name(prefix + stray.key) in lacking]
    return {
        escape_name(prefix + stray.key): unknown_extension_reason((stray.member.name, stray.extension))
        for stray in mine
        if stray.member.kind is Kind.FILE and is_readable_image(members.head(stray.member, HEAD_BYTES))
    }


def unknown_extension_reason(picture: tuple[str, str]) -> str:
    """Return the reason for which a picture without a sample is broken; picture: its name and extension."""
    name, extension = picture
    hint = "a name is split at its first dot" if "." in extension else "data.source.image names others"
    return f"no image: {escape_name(name)} has the extension {escape_name(extension)} ({hint}); see data.source.image"
