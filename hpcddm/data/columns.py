"""Columns: values of every sample, memory-mapped from contiguous HDF5 datasets in one or several files.

`column_files` writes the files.
"""

import errno
import math
import mmap
import os
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
from jaxtyping import Int64, Integer, Shaped

from hpcddm.errors import UserError
from hpcddm.files import checked_reads, hdf5
from hpcddm.files.checked_reads import Unreadable

Numbers = range | Sequence[int] | Integer[np.ndarray, " n"]
"""Numbers of samples, or rows of a column."""
BYTES, OFFSETS = "bytes", "offsets"
"""Datasets of a column of texts: the concatenated texts in UTF-8, and the N + 1 offsets where they begin and end."""
VALUES = "values"
"""Dataset of a column of several rows per sample, which replaces `BYTES`; its offsets count rows."""
LARGE_ROW = mmap.PAGESIZE
"""Size in bytes from which rows are read one by one; the neighbours of smaller rows are needed soon, too."""
MAX_OPEN_FILES = 8192
"""Open files that suffice for two splits of 256 ranges, with several column files each, and for tars."""


class NoSuchSample(UserError, IndexError):
    """Error for sample numbers that a list contains and the data do not."""

    def __init__(self, first: int, last: int, count: int) -> None:
        advice = "a list of numbers is of other data; fetch it again, or submit with --redo expert_lists"
        super().__init__(f"samples {first} to {last} requested of {count}: {advice}")


class Column:
    """One value or array per sample, stored in one or several files; only requested rows are read.

    Args:
        name: Name of the dataset in the files.
        parts: Files in the order of the samples, with the number of rows in each.

    Raises:
        UserError: A file is missing, truncated, or has another number of rows; the message names it.

    Examples:
        >>> import tempfile
        >>> from hpcddm.data.column_files import write_columns
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "columns.h5")
        ...     write_columns(path, {"label": np.array([3, 1, 2])})
        ...     Column("label", {path: 3}).gather([2, 0])
        array([2, 3])
    """

    def __init__(self, name: str, parts: Mapping[Path, int]) -> None:
        self.name = name
        self._files = {path: _mapped(path) for path in parts}
        self._rows = [self._files[path].rows(name, count) for path, count in parts.items()]
        self._starts = _starts(parts.values())
        self.dtype, self.item_shape = self._rows[0].dtype, self._rows[0].shape[1:]
        self._is_large = self.dtype.itemsize * math.prod(self.item_shape) >= LARGE_ROW

    def __len__(self) -> int:
        return self._starts[-1]

    def gather(self, numbers: Numbers) -> Shaped[np.ndarray, "n ..."]:
        """Copy the rows of some samples.

        Args:
            numbers: (N,) numbers of samples, in any order.

        Returns:
            Rows in the order of `numbers`, (N, ...).

        Raises:
            NoSuchSample: A number is negative or not below the number of rows.
        """
        if isinstance(numbers, range) and numbers.step == 1:
            return self._consecutive(numbers)
        rows = _checked(numbers, len(self))
        if len(self._rows) == 1 and not self._is_large:
            return self._rows[0][rows]
        owned = {part: (places, rows[places] - self._starts[part]) for part, places in _by_part(rows, self._starts)}
        if self._is_large:
            files = [*self._files.values()]
            for part, (_, own) in owned.items():
                files[part].will_need(self.name, own, own + 1)
        gathered = np.empty((len(rows), *self.item_shape), self.dtype)
        for part, (places, own) in owned.items():
            gathered[places] = self._rows[part][own]
        return gathered

    def as_array(self) -> Shaped[np.ndarray, "n ..."]:
        """Return the rows of a column in one file as a memory-mapped array, which is read from disk on access."""
        (rows,) = self._rows
        return rows

    def find_rows(self, values: Numbers) -> Int64[np.ndarray, " n"]:
        """Return the rows of some values in a column of one file whose values ascend.

        Raises:
            KeyError: The column does not contain one of the values.
        """
        (rows,) = self._rows
        # In another type, all rows would be copied into that of the values.
        wanted = np.asarray(values).astype(rows.dtype)
        places = np.searchsorted(rows, wanted)
        missing = rows[np.minimum(places, len(rows) - 1)] != wanted
        if missing.any():
            raise KeyError(f"{self.name} has no {wanted[missing][0]}")
        return places

    def _consecutive(self, numbers: range) -> Shaped[np.ndarray, "n ..."]:
        places = _places(numbers, self._starts)
        return np.concatenate([rows[place] for rows, place in zip(self._rows, places, strict=True)])


def count_values(column: Column, numbers: Numbers, limit: int) -> Int64[np.ndarray, " {limit}"]:
    """Count each of the values 0 to `limit` - 1 in some rows; raise `UserError` if there is another value."""
    values = column.gather(numbers)
    is_whole = values.ndim == 1 and values.dtype.kind in "iu"
    if not is_whole or (len(values) and not 0 <= values.min() <= values.max() < limit):
        fault = f"has values that are not whole numbers from 0 to {limit - 1}"
        raise UserError(f"column {column.name}: {fault}; make the units with this column again, or fetch them")
    return np.bincount(values.astype(np.int64), minlength=limit)


def gather_rows(values: Column | np.ndarray, numbers: Numbers) -> Shaped[np.ndarray, "n ..."]:
    """Copy the rows of some numbers from a column or from an array in memory."""
    return values.gather(numbers) if isinstance(values, Column) else values[np.asarray(numbers, dtype=np.int64)]


class _JoinedColumn:
    """Values of all samples one behind the other, several for each; arguments and errors are those of `Column`.

    Attributes:
        dataset: Name of the dataset with the values in that of the column.
    """

    dataset: str

    def __init__(self, name: str, parts: Mapping[Path, int]) -> None:
        self._name, self._files = f"{name}/{self.dataset}", {path: _mapped(path) for path in parts}
        self._offsets = [self._files[path].rows(f"{name}/{OFFSETS}", count + 1) for path, count in parts.items()]
        ends = [int(offsets[-1]) for offsets in self._offsets]
        self._values = [self._files[path].rows(self._name, end) for path, end in zip(parts, ends, strict=True)]
        self._starts = _starts(parts.values())

    def __len__(self) -> int:
        return self._starts[-1]


class TextColumn(_JoinedColumn):
    """One text per sample, stored in one or several files; arguments and errors are those of `Column`."""

    dataset = BYTES

    def gather(self, numbers: Numbers) -> list[str]:
        """Copy the texts of some samples in the order of `numbers`; raise `NoSuchSample` as `Column.gather` does."""
        if isinstance(numbers, range) and numbers.step == 1:
            return self._consecutive(numbers)
        rows = _checked(numbers, len(self))
        texts = [""] * len(rows)
        for part, places in _by_part(rows, self._starts):
            own = rows[places] - self._starts[part]
            ends = zip(self._offsets[part][own].tolist(), self._offsets[part][own + 1].tolist(), strict=True)
            content = self._values[part].data
            for place, (begin, end) in zip(places.tolist(), ends, strict=True):
                texts[place] = str(content[begin:end], "utf-8", "surrogateescape")
        return texts

    def _consecutive(self, numbers: range) -> list[str]:
        texts: list[str] = []
        for place, offsets, column in zip(_places(numbers, self._starts), self._offsets, self._values, strict=True):
            if place.start < place.stop:
                ends = offsets[place.start : place.stop + 1].tolist()
                content = column.data
                texts += [str(content[begin:end], "utf-8", "surrogateescape") for begin, end in pairwise(ends)]
        return texts


class RaggedColumn(_JoinedColumn):
    """Several rows per sample, in varying number; arguments and errors are those of `Column`."""

    dataset = VALUES

    def __init__(self, name: str, parts: Mapping[Path, int]) -> None:
        super().__init__(name, parts)
        self.dtype, self.item_shape = self._values[0].dtype, self._values[0].shape[1:]

    def flat(self, numbers: range) -> tuple[Shaped[np.ndarray, "m ..."], Int64[np.ndarray, " n"]]:
        """Copy all rows of consecutive samples; return them and the number of rows of each sample, (N,)."""
        values, lengths = [], []
        for place, offsets, rows in zip(_places(numbers, self._starts), self._offsets, self._values, strict=True):
            ends = offsets[place.start : place.stop + 1].astype(np.int64)
            if len(ends) > 1:
                values.append(rows[ends[0] : ends[-1]])
                lengths.append(np.diff(ends))
        nothing = np.empty((0, *self.item_shape), self.dtype)
        return np.concatenate([nothing, *values]), np.concatenate([np.empty(0, np.int64), *lengths])

    def gather(self, numbers: Numbers, max_rows: int) -> Shaped[np.ndarray, "n {max_rows} ..."]:
        """Copy the first `max_rows` rows of some samples, padded with zeros: (N, max_rows, ...).

        Raises:
            NoSuchSample: A number is negative or not below the number of samples.
        """
        rows = _checked(numbers, len(self))
        spans, files = [], [*self._files.values()]
        for part, places in _by_part(rows, self._starts):
            own = rows[places] - self._starts[part]
            begins, ends = self._offsets[part][own].astype(np.int64), self._offsets[part][own + 1].astype(np.int64)
            ends = np.minimum(ends, begins + max_rows)
            files[part].will_need(self._name, begins, ends)
            spans.append((self._values[part], zip(places.tolist(), begins.tolist(), ends.tolist(), strict=True)))
        gathered = np.zeros((len(rows), max_rows, *self.item_shape), self.dtype)
        for values, copied in spans:
            for place, begin, end in copied:
                gathered[place, : end - begin] = values[begin:end]
        return gathered


class _MappedFile:
    """HDF5 file mapped as a whole: one file descriptor for all columns, and no lock, so that forks can share it."""

    def __init__(self, path: Path) -> None:
        try:
            # The map first: it keeps the file that is looked at.
            with open(checked_reads.open_regular(path), "rb") as plain:
                self._map = mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_READ)
                with hdf5.open_checked_stream(path, plain) as file:
                    self._layouts = {
                        name: (dataset.id.get_offset(), dataset.shape, dataset.dtype)
                        for name, dataset in hdf5.list_datasets(file)
                    }
        except (Unreadable, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error)
            if any(os.strerror(number) in reason for number in (errno.EMFILE, errno.ENFILE)):
                raise UserError(f"{path}: {reason}; raise the limit, 'ulimit -n' of the job's shell") from None
            raise _unusable(path, reason) from None
        self._path = path

    def rows(self, name: str, count: int) -> Shaped[np.ndarray, "{count} ..."]:
        """Map a dataset of `count` rows; raise `UserError` if the file lacks the dataset or some of its bytes."""
        if name not in self._layouts:
            raise _unusable(self._path, f"it has no column {name}, only {', '.join(map(str, self._layouts))}")
        offset, shape, dtype = self._layouts[name]
        if shape[:1] != (count,):
            raise _unusable(self._path, f"column {name} has shape {shape} instead of {count} rows")
        values = math.prod(shape)
        if not values:
            return np.empty(shape, dtype)
        if offset is None:
            raise _unusable(self._path, f"column {name} is not contiguous")
        if offset + values * dtype.itemsize > len(self._map):
            raise _unusable(self._path, f"column {name} ends behind its {len(self._map)} bytes")
        return np.frombuffer(self._map, dtype, values, offset).reshape(shape)

    def will_need(self, name: str, begins: Int64[np.ndarray, " n"], ends: Int64[np.ndarray, " n"]) -> None:
        """Ask the kernel to read rows of a dataset ahead, from each begin to its end, all at once.

        Without this, each copied row waits for the disk separately, and the kernel reads its neighbours, too.
        """
        offset, shape, dtype = self._layouts[name]
        row_bytes = dtype.itemsize * math.prod(shape[1:])
        if offset is None or not row_bytes:
            return
        first = (offset + begins * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        for start, length in zip(first.tolist(), (offset + ends * row_bytes - first).tolist(), strict=True):
            if length > 0:
                # Advice that the system does not take changes no value.
                with suppress(OSError):
                    self._map.madvise(mmap.MADV_WILLNEED, start, length)


_FILES: WeakValueDictionary[tuple, _MappedFile] = WeakValueDictionary()


def _mapped(path: Path) -> _MappedFile:
    """Map a file once for all columns in use; a file that replaces it is mapped separately."""
    _raise_limit_of_files()
    try:
        status = os.stat(path)
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from None
    key = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    file = _FILES.get(key)
    if file is None:
        file = _FILES[key] = _MappedFile(path)
    return file


@cache
def _raise_limit_of_files() -> None:
    """Raise this process's limit of open files, usually 1024, as far as allowed: each map needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _unusable(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path}: no usable columns ({reason}); remove {path.parent}/manifest.json and submit again to make it"
    )


def _checked(numbers: Numbers, count: int) -> Int64[np.ndarray, " n"]:
    """Return numbers of samples as an array; raises `NoSuchSample` for a number without a sample."""
    rows = np.asarray(numbers, dtype=np.int64)
    if rows.size and not 0 <= rows.min() <= rows.max() < count:
        raise NoSuchSample(int(rows.min()), int(rows.max()), count)
    return rows


def _by_part(rows: Int64[np.ndarray, " n"], starts: Sequence[int]) -> Iterator[tuple[int, Int64[np.ndarray, " m"]]]:
    """Yield every part that has some of the samples, with their places among them."""
    owners = np.searchsorted(np.asarray(starts[1:]), rows, side="right")
    by_owner = np.argsort(owners, kind="stable")
    for places in np.split(by_owner, np.flatnonzero(np.diff(owners[by_owner])) + 1):
        if len(places):
            yield int(owners[places[0]]), places


def _places(numbers: range, starts: Sequence[int]) -> list[slice]:
    """Return the rows of consecutive samples in every part; raises `NoSuchSample` for a number without a sample."""
    if len(numbers) and not 0 <= numbers.start < numbers.stop <= starts[-1]:
        raise NoSuchSample(numbers.start, numbers.stop - 1, starts[-1])
    return [
        slice(min(max(numbers.start - start, 0), end - start), min(max(numbers.stop - start, 0), end - start))
        for start, end in pairwise(starts)
    ]


def _starts(counts: Iterable[int]) -> list[int]:
    """Return the number of the first sample of every part, followed by the number of all samples."""
    return [0, *accumulate(counts)]
