"""Files of tensors (safetensors) with full checks: header, bytes and hash come from one open file.

The format: https://huggingface.co/docs/safetensors/index#format.
"""

import hashlib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.errors import require
from hpcddm.errors.printing import printable
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import MIB, Unreadable

HEADER_BYTES = 16 * MIB
"""Largest size of a header."""
LENGTH_BYTES = 8
"""Number of bytes at the beginning that encode the length of the header."""
CHUNK_BYTES = 4 * MIB
"""Number of bytes that are read and then hashed while they are in the processor's cache."""
MAX_DIMENSIONS = 8
FLOATS = ("F32", "F16", "BF16")
"""Types of a network's values."""
VALUE_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
VALUE_BYTES |= {"I8": 1, "U8": 1, "BOOL": 1}
"""Bytes per value of each type."""


@dataclass(frozen=True)
class TensorSpec:
    """Type and shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"

    @property
    def size(self) -> int:
        """Size of all values in bytes."""
        return math.prod(self.shape) * VALUE_BYTES[self.dtype]


class TensorFile:
    """Context manager of an open file of tensors whose header is valid: the tensors are contiguous and fill the file.

    Args:
        path: The file; it must be regular.
        follows_links: True to follow a link at `path`, for files that the user names.
        root: A folder above the file; links below it are not followed.

    Raises:
        FileNotFoundError: The file does not exist.
        Unreadable: The header is not valid; the message has the reason and, if there is one, the tensor.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from safetensors.numpy import save_file
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_file({"bias": np.zeros(3, np.float32)}, Path(folder, "weights.safetensors"))
        ...     with TensorFile(Path(folder, "weights.safetensors")) as file:
        ...         file.forms
        {'bias': TensorSpec(dtype='F32', shape=(3,))}
    """

    def __init__(self, path: Path, follows_links: bool = False, root: Path | None = None) -> None:
        self.path, descriptor = path, checked_reads.open_regular(path, root, follows_links)
        self._file = open(descriptor, "rb", buffering=0)  # noqa: SIM115
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "TensorFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _size_and_time(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _read_header(self) -> None:
        self._status = self._size_and_time()
        size, _ = self._status
        self._check(size >= LENGTH_BYTES, f"has {size} bytes, too few for tensors")
        length = int.from_bytes(os.pread(self._file.fileno(), LENGTH_BYTES, 0), "little")
        self.start = LENGTH_BYTES + length
        self._check(length <= HEADER_BYTES, f"has a header of {length:,} bytes, more than {HEADER_BYTES:,}")
        self._check(self.start <= size, f"has {size:,} bytes, fewer than its header of {length:,} says")
        try:
            header = checked_reads.parse_json(os.pread(self._file.fileno(), length, LENGTH_BYTES))
            self.metadata = _metadata(header)
            self._places = dict(sorted(_places(header).items(), key=lambda item: item[1][1:]))
        except ValueError as error:
            raise Unreadable(self.path, f"has no usable header: {error}") from None
        self.forms = {name: form for name, (form, _, _) in self._places.items()}
        end = 0
        for name, (_, first, last) in self._places.items():
            self._check(first == end, f"tensor '{printable(name)}' begins at byte {first:,} instead of {end:,}")
            end = last
        whole = self.start + end
        self._check(size == whole, f"has {size:,} bytes instead of {whole:,}, as its header says")

    def _check(self, condition: bool, reason: str) -> None:
        if not condition:
            raise Unreadable(self.path, reason)

    def require(self, expected: Mapping[str, TensorSpec]) -> None:
        """Check that the file has exactly the expected tensors.

        Args:
            expected: Type and shape of each tensor by name.

        Raises:
            Unreadable: A tensor is missing, unexpected, or has another type or shape; the message names the first.
        """
        missing = next((name for name in expected if name not in self.forms), None)
        self._check(missing is None, f"lacks tensor '{missing}'")
        for name, form in self.forms.items():
            self._check(name in expected, f"has a tensor '{printable(name)}', which the network lacks")
            if form != expected[name]:
                raise self.mismatch_error(name, expected[name])

    def require_unchanged(self) -> None:
        """Raise `Unreadable` if the file was written since it was opened, as between hashing and reading its parts."""
        self._check(self._size_and_time() == self._status, "was changed while it was read")

    def mismatch_error(self, name: str, expected: object) -> Unreadable:
        """Return the error for a tensor that has another type or shape than expected."""
        return Unreadable(self.path, f"tensor '{printable(name)}' is {self.forms[name]} instead of {expected}")

    def read(self, targets: Mapping[str, memoryview]) -> str:
        """Read the file once, in the order of its bytes.

        Args:
            targets: Writable memory of exactly the size of a tensor, by name; other tensors are only hashed.

        Returns:
            SHA-256 of the file in hexadecimal.
        """
        hashed, scratch = hashlib.sha256(), memoryview(bytearray(CHUNK_BYTES))
        self._file.seek(0)
        self._take(self.start, scratch, hashed)
        for name, form in self.forms.items():
            self._take(form.size, targets.get(name, scratch), hashed)
        return hashed.hexdigest()

    def read_part(self, name: str, first: int, target: memoryview) -> None:
        """Read consecutive bytes of a tensor.

        Args:
            name: Name of the tensor.
            first: Offset of the first byte in the tensor.
            target: Writable memory; its size is the number of bytes to read.
        """
        self._file.seek(self.start + self._places[name][1] + first)
        self._take(target.nbytes, target, None)

    def copy(self, path: Path) -> str:
        """Copy the file.

        Args:
            path: New file; it must not exist.

        Returns:
            SHA-256 of the file in hexadecimal.
        """
        hashed = hashlib.sha256()
        self._file.seek(0)
        with open(path, "xb") as target:
            while piece := self._file.read(CHUNK_BYTES):
                hashed.update(piece)
                target.write(piece)
        return hashed.hexdigest()

    def _take(self, count: int, target: memoryview, hashed: Any) -> None:
        """Read `count` bytes into a target; a smaller target is overwritten repeatedly."""
        done = 0
        while done < count:
            place = done % target.nbytes
            piece = target[place : place + min(count - done, CHUNK_BYTES)]
            got = self._file.readinto(piece)
            self._check(got > 0, "became shorter while it was read")
            if hashed is not None:
                hashed.update(piece[:got])
            done += got


def _metadata(header: Any) -> dict[str, str]:
    """Return the file's metadata from its header; raise ValueError unless they map texts to texts."""
    require(isinstance(header, dict), "it is not a mapping of names", ValueError)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata are not texts by name")
    return metadata


def _places(header: dict[str, Any]) -> dict[str, tuple[TensorSpec, int, int]]:
    """Return spec, first byte and end of every tensor; raise ValueError naming an invalid one."""
    places = {}
    for name, entry in header.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"tensor '{printable(name)}' has other entries than dtype, shape and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in VALUE_BYTES:
            raise ValueError(f"tensor '{printable(name)}' is of an unknown type, {printable(str(dtype), 20)}")
        if not _are_counts(shape) or len(shape) > MAX_DIMENSIONS or not _are_counts(offsets) or len(offsets) != 2:
            raise ValueError(f"tensor '{printable(name)}' has no usable shape or place")
        form = TensorSpec(dtype, tuple(shape))
        size = offsets[1] - offsets[0]
        require(size == form.size, f"tensor '{printable(name)}' is {form} and has {size:,} bytes", ValueError)
        places[name] = (form, offsets[0], offsets[1])
    return places


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def require_floats(file: TensorFile, names: Iterable[str]) -> None:
    """Raise `Unreadable` naming the first of some tensors that is not of a floating-point type of networks."""
    for name in names:
        if file.forms[name].dtype not in FLOATS:
            raise file.mismatch_error(name, f"{', '.join(FLOATS)}")
