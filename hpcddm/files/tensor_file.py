"""Files of tensors (safetensors), of which nothing is believed: header, bytes and hash come from one open file.

The format: https://huggingface.co/docs/safetensors/index#format.
"""

import hashlib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.errors.printing import printable
from hpcddm.files import reading
from hpcddm.files.reading import MIB, Unreadable

HEADER_BYTES = 16 * MIB
"""Most bytes of a header."""
LENGTH_BYTES = 8
"""Bytes at the beginning that give the length of the header."""
PIECE_BYTES = 4 * MIB
"""Bytes that are read and hashed at once, while they are in the processor's cache."""
MOST_DIMENSIONS = 8
FLOATS = ("F32", "F16", "BF16")
"""Types of the values of networks."""
VALUE_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
VALUE_BYTES |= {"I8": 1, "U8": 1, "BOOL": 1}
"""Bytes of a value of every type."""


@dataclass(frozen=True)
class Form:
    """Type and shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return math.prod(self.shape) * VALUE_BYTES[self.dtype]


class TensorFile:
    """An open file of tensors, its header checked: the tensors follow one another and fill the file; a context manager.

    Args:
        path: The file, a regular one and no link.
        follows_links: True for a file that the user names.

    Raises:
        FileNotFoundError: Where there is nothing.
        Unreadable: With the reason, and the tensor where it concerns one.
    """

    def __init__(self, path: Path, follows_links: bool = False) -> None:
        self.path = path
        self._file = open(reading.open_regular(path, follows_links=follows_links), "rb", buffering=0)  # noqa: SIM115
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "TensorFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read_header(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        if size < LENGTH_BYTES:
            raise Unreadable(self.path, f"has {size} bytes, too few for tensors")
        length = int.from_bytes(os.pread(self._file.fileno(), LENGTH_BYTES, 0), "little")
        self.start = LENGTH_BYTES + length
        if length > HEADER_BYTES:
            raise Unreadable(self.path, f"has a header of {length:,} bytes, more than {HEADER_BYTES:,}")
        if self.start > size:
            raise Unreadable(self.path, f"has {size:,} bytes, fewer than its header of {length:,} says")
        try:
            header = reading.parse(os.pread(self._file.fileno(), length, LENGTH_BYTES))
            self.metadata = _metadata(header)
            self._places = dict(sorted(_places(header).items(), key=lambda item: item[1][1:]))
        except ValueError as error:
            raise Unreadable(self.path, f"has no usable header: {error}") from None
        self.forms = {name: form for name, (form, _, _) in self._places.items()}
        end = 0
        for name, (_, first, last) in self._places.items():
            if first != end:
                raise Unreadable(self.path, f"tensor '{printable(name)}' begins at byte {first:,} instead of {end:,}")
            end = last
        if self.start + end != size:
            raise Unreadable(self.path, f"has {size:,} bytes instead of {self.start + end:,}, as its header says")

    def require(self, expected: Mapping[str, Form]) -> None:
        """Raise `Unreadable` naming the first tensor that is missing, is one too many, or has another type or shape."""
        missing = next((name for name in expected if name not in self.forms), None)
        if missing is not None:
            raise Unreadable(self.path, f"lacks tensor '{missing}'")
        for name, form in self.forms.items():
            if name not in expected:
                raise Unreadable(self.path, f"has a tensor '{printable(name)}', which the network lacks")
            if form != expected[name]:
                raise self.unfit(name, expected[name])

    def unfit(self, name: str, expected: object) -> Unreadable:
        """Return the error for a tensor of another type or shape than is expected."""
        return Unreadable(self.path, f"tensor '{printable(name)}' is {self.forms[name]} instead of {expected}")

    def read(self, targets: Mapping[str, memoryview]) -> str:
        """Read the file once, in the order of its bytes, and return its SHA-256, in hexadecimal.

        Args:
            targets: By name, writable memory of just the size of a tensor; tensors without one are hashed alone.
        """
        hashed, scratch = hashlib.sha256(), memoryview(bytearray(PIECE_BYTES))
        self._file.seek(0)
        self._take(self.start, scratch, hashed)
        for name, form in self.forms.items():
            if name in targets:
                self._take(form.size, targets[name], hashed)
            else:
                self._take(form.size, scratch, hashed)
        return hashed.hexdigest()

    def read_part(self, name: str, first: int, target: memoryview) -> None:
        """Read a tensor's bytes from its byte `first` on, as many as there is room for."""
        self._file.seek(self.start + self._places[name][1] + first)
        self._take(target.nbytes, target, None)

    def copy(self, path: Path) -> str:
        """Copy the bytes into a new file and return their SHA-256, in hexadecimal."""
        hashed = hashlib.sha256()
        self._file.seek(0)
        with open(path, "xb") as target:
            while piece := self._file.read(PIECE_BYTES):
                hashed.update(piece)
                target.write(piece)
        return hashed.hexdigest()

    def _take(self, count: int, target: memoryview, hashed: Any) -> None:
        """Read so many bytes into a target, over and over where it has fewer."""
        done = 0
        while done < count:
            place = done % target.nbytes
            piece = target[place : place + min(count - done, PIECE_BYTES)]
            got = self._file.readinto(piece)
            if not got:
                raise Unreadable(self.path, "became shorter while it was read")
            if hashed is not None:
                hashed.update(piece[:got])
            done += got


def _metadata(header: Any) -> dict[str, str]:
    """Take the file's own description from its header; raises ValueError where it is not text by text."""
    if not isinstance(header, dict):
        raise ValueError("it is not a mapping of names")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata are not texts by name")
    return metadata


def _places(header: dict[str, Any]) -> dict[str, tuple[Form, int, int]]:
    """Return form, first byte and end of every tensor; raises ValueError naming one that makes no sense."""
    places = {}
    for name, entry in header.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"tensor '{printable(name)}' has other entries than dtype, shape and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in VALUE_BYTES:
            raise ValueError(f"tensor '{printable(name)}' is of an unknown type, {printable(str(dtype), 20)}")
        if not _are_counts(shape) or len(shape) > MOST_DIMENSIONS or not _are_counts(offsets) or len(offsets) != 2:
            raise ValueError(f"tensor '{printable(name)}' has no usable shape or place")
        form = Form(dtype, tuple(shape))
        if offsets[1] - offsets[0] != form.size:
            raise ValueError(f"tensor '{printable(name)}' is {form} and has {offsets[1] - offsets[0]:,} bytes")
        places[name] = (form, offsets[0], offsets[1])
    return places


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def require_floats(file: TensorFile, names: Iterable[str]) -> None:
    """Raise `Unreadable` naming the first of some tensors whose values are not those of a network."""
    for name in names:
        if file.forms[name].dtype not in FLOATS:
            raise file.unfit(name, f"{', '.join(FLOATS)}")
