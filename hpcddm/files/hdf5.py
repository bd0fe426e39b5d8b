"""HDF5 files that others may have written: the sizes that a file claims are checked before data are read.

HDF5 can name other files (external storage, external links, virtual datasets) and run filters of plugins, and it can
declare arrays of any size. Files of runs hold none of that.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import h5py

from hpcddm.errors import UserError, require
from hpcddm.errors.printing import printable
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable

FAILURES = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, OverflowError, MemoryError)
"""Exceptions that h5py raises for a torn or damaged file."""
MAX_GROUP_DEPTH = 8
"""Maximum depth of nested groups."""
MAX_COMPRESSION_RATIO = 1100
"""Most bytes of values per stored byte: no filter that comes with HDF5 packs closer than 1032 to 1."""
MAX_CHUNK_BYTES = 1 << 30
"""Most bytes of a chunk, which is unpacked as a whole."""
FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_SCALEOFFSET}
FILTERS |= {h5py.h5z.FILTER_LZF, h5py.h5z.FILTER_SZIP, h5py.h5z.FILTER_NBIT}
"""Filters that come with HDF5 and h5py; others would be loaded from a plugin."""
VALUES = {h5py.h5t.INTEGER, h5py.h5t.FLOAT}
"""Classes of the values in files of runs."""


@contextmanager
def open_checked(path: Path) -> Iterator[h5py.File]:
    """Open a file of a run, not a link, after a check of all its datasets.

    Raises `Unreadable` with the reason, also where reading fails inside the context, and `FileNotFoundError`.
    """
    with open(checked_reads.open_regular(path), "rb") as plain, open_checked_stream(path, plain) as file:
        yield file


@contextmanager
def open_checked_stream(path: Path, plain: BinaryIO) -> Iterator[h5py.File]:
    """Check an HDF5 file that is already open, and open it as `open_checked` does; `path` is for errors."""
    with convert_errors(path), open_unchecked(plain) as file:
        for name, dataset in list_datasets(file):
            require_usable(path, name, dataset)
        yield file


def open_unchecked(plain: BinaryIO) -> h5py.File:
    """Open a file that is open already, without checking its content."""
    # The name of the descriptor leads to the file that was opened, whatever has its path by now.
    return h5py.File(f"/proc/self/fd/{plain.fileno()}", "r")


@contextmanager
def convert_errors(path: Path) -> Iterator[None]:
    """Raise what h5py raises for a damaged file as `Unreadable`."""
    try:
        yield
    except (UserError, FileNotFoundError):
        raise
    except FAILURES as error:
        raise Unreadable(path, f"cannot be read ({printable(error)}), a torn or damaged file") from None


def find_dataset(file: h5py.File, name: str) -> h5py.Dataset | None:
    """Return the dataset of a name, None where there is none; raises ValueError where a link leads there."""
    place: Any = file.id
    for part in name.strip("/").encode(errors="surrogateescape").split(b"/"):
        if not isinstance(place, (h5py.h5f.FileID, h5py.h5g.GroupID)) or part not in place:
            return None
        require(place.links.get_info(part).type == h5py.h5l.TYPE_HARD, f"'{printable(name)}' is a link", ValueError)
        place = h5py.h5o.open(place, part)
    return h5py.Dataset(place) if isinstance(place, h5py.h5d.DatasetID) else None


def require_usable(path: Path, name: str, dataset: h5py.Dataset, is_user_file: bool = False) -> None:
    """Raise `Unreadable` for a dataset whose values cannot be read safely.

    users: True for a file of the user's, where texts and packed chunks are usual.
    """
    fault = _fault(dataset, is_user_file)
    if fault:
        raise Unreadable(path, f"dataset '{printable(name)}' {fault}")


def list_datasets(file: h5py.File, is_user_file: bool = False) -> list[tuple[str, h5py.Dataset]]:
    """List all datasets by name, in the order of the names; raises ValueError naming what is neither that nor a group.

    Links to other places, in the file or in others, are refused, as is anything that has two names. users: True passes
    over all that, as in a file of the user's.
    """
    listed: list[tuple[str, h5py.Dataset]] = []
    seen: set[Any] = {_identity(h5py.h5g.open(file.id, b"/"))}
    groups: list[tuple[str, Any, int]] = [("", h5py.h5g.open(file.id, b"/"), 0)]
    while groups:
        prefix, group, depth = groups.pop()
        for encoded in group:
            name = prefix + encoded.decode(errors="replace")
            item, fault = None, "is a link"
            if group.links.get_info(encoded).type == h5py.h5l.TYPE_HARD:
                item, fault = h5py.h5o.open(group, encoded), "is neither a dataset nor a group"
                if _identity(item) in seen or depth == MAX_GROUP_DEPTH:
                    item, fault = None, "has several names, or too many groups around it"
                else:
                    seen.add(_identity(item))
            if isinstance(item, h5py.h5g.GroupID):
                groups.append((f"{name}/", item, depth + 1))
            elif isinstance(item, h5py.h5d.DatasetID):
                listed.append((name, h5py.Dataset(item)))
            elif not is_user_file:
                raise ValueError(f"'{printable(name)}' {fault}")
    return sorted(listed, key=lambda pair: pair[0])


def _identity(item: Any) -> Any:
    return h5py.h5o.get_info(item).addr


def _fault(dataset: h5py.Dataset, users: bool) -> str | None:
    """Return the fault of a dataset, found before its values are read; None if it is sound."""
    made, kind = dataset.id.get_create_plist(), dataset.id.get_type()
    is_text = h5py.check_string_dtype(dataset.dtype) is not None
    layout = made.get_layout()
    if made.get_external_count() or layout == h5py.h5d.VIRTUAL:
        return "has its values in another file"
    if dataset.shape is None or kind.get_class() not in VALUES and not (users and is_text) and dataset.dtype != bool:
        return f"holds {printable(dataset.dtype)}, neither numbers nor texts"
    if not users and made.get_nfilters():
        return "is packed by a filter"
    if any(made.get_filter(number)[0] not in FILTERS for number in range(made.get_nfilters())):
        return "is packed by a filter of a plugin"
    declared, stored = dataset.size * kind.get_size(), dataset.id.get_storage_size()
    if declared > stored * (MAX_COMPRESSION_RATIO if made.get_nfilters() else 1):
        return f"declares {declared:,} bytes and holds {stored:,}"
    offset = dataset.id.get_offset()
    if layout == h5py.h5d.CONTIGUOUS and declared and offset + declared > dataset.file.id.get_filesize():
        return f"ends behind the {dataset.file.id.get_filesize():,} bytes of the file"
    if layout == h5py.h5d.CHUNKED and math.prod(dataset.chunks) * kind.get_size() > MAX_CHUNK_BYTES:
        return f"has chunks of more than {MAX_CHUNK_BYTES:,} bytes"
    return None
