"""Parts of a training state: each rank's values by parameter, which any number of ranks can put together again."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from hpcddm.errors import UserError
from hpcddm.errors.printing import printable
from hpcddm.files import checked_reads, tensors
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.tensor_file import TensorFile, TensorSpec
from hpcddm.files.tensors import save_tensors

STARTS = "starts"
"""Key in a file's metadata of the first value of each parameter that the file holds, by name, as JSON."""

STEPS = "steps"
"""Kind that holds the number of the optimizer's steps, one value per slice."""

ShardsByKind = Mapping[str, Sequence[torch.Tensor | None]]
"""Flat shards of a rank by kind, such as weights or a moment; None where there is none yet of that kind."""


@dataclass(frozen=True)
class Slice:
    """Consecutive values of one parameter in one shard of a rank: `length` values from `start` on, flat."""

    shard: int
    offset: int
    """Number of the shard's value with which the slice begins."""
    name: str
    start: int
    length: int

    def within(self, shard: torch.Tensor) -> torch.Tensor:
        """Return a view of the slice, (length,), in its shard."""
        return shard.view(-1)[self.offset : self.offset + self.length]


def write(kinds: ShardsByKind, steps: Sequence[float | None], slices: Sequence[Slice], file: Path) -> None:
    """Write the slices of every kind to a safetensors file, and beside each the optimizer's steps of its shard."""
    present = {
        f"{kind}/{part.name}": part.within(shard)
        for kind, shards in kinds.items()
        for part in slices
        if (shard := shards[part.shard]) is not None
    }
    counted = {part.name: steps[part.shard] for part in slices}
    present |= {f"{STEPS}/{name}": torch.tensor([step]) for name, step in counted.items() if step is not None}
    save_tensors(present, file, {STARTS: json.dumps({part.name: part.start for part in slices})})


class StateFiles:
    """Open files of all ranks of a training state, read as whole parameters; a context manager, which closes them."""

    def __init__(self, files: Iterable[TensorFile]) -> None:
        self._files = list(files)
        self._opened = ExitStack()
        self._parts: dict[str, list[tuple[int, int, TensorFile]]] = {}

    def __enter__(self) -> "StateFiles":
        for opened in self._files:
            file = self._opened.enter_context(opened)
            starts = _starts(file)
            for key, form in file.forms.items():
                start = starts[key.partition("/")[2]]
                self._parts.setdefault(key, []).append((start, start + form.shape[0], file))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def require_unchanged(self) -> None:
        """Raise `Unreadable` if a file was written since it was opened, before its digest was checked."""
        for file in self._files:
            file.require_unchanged()

    @property
    def kinds(self) -> set[str]:
        """The kinds that have values."""
        return {key.partition("/")[0] for key in self._parts} - {STEPS}

    def has(self, kind: str, part: Slice) -> bool:
        """Tell if there are values of this kind of a slice's parameter."""
        return f"{kind}/{part.name}" in self._parts

    def steps(self, part: Slice) -> float | None:
        """Return the optimizer's steps of a slice's parameter; None where there are none."""
        key = f"{STEPS}/{part.name}"
        return next((tensors.read_whole(file, key).item() for _, _, file in self._parts.get(key, ())), None)

    def fill(self, kind: str, part: Slice, values: torch.Tensor) -> None:
        """Set a slice's values, (length,), to those of this kind; raises `UserError` where some are missing."""
        key, filled, stop = f"{kind}/{part.name}", 0, part.start + part.length
        for stored_start, stored_stop, file in self._parts.get(key, ()):
            first, last = max(part.start, stored_start), min(stop, stored_stop)
            if first < last:
                target = values[first - part.start : last - part.start]
                read = torch.empty(last - first, dtype=torch.float32)
                tensors.read_part(file, key, first - stored_start, read)
                target.copy_(read)
                filled += last - first
        if filled != part.length:
            place = self._files[0].path.parent if self._files else "the state"
            have = f"{kind} of {part.name}: {filled} of the values {part.start} to {stop}"
            raise UserError(f"{place}: has {have}; remove the folder to go on from another state")


def _starts(file: TensorFile) -> dict[str, int]:
    """Read the first value of each parameter in a file; raises `Unreadable` where it is not a part of a state."""
    try:
        starts = checked_reads.parse_json(file.metadata.get(STARTS, "").encode())
    except ValueError as error:
        raise Unreadable(file.path, f"has no usable '{STARTS}': {error}") from None
    for key, form in file.forms.items():
        kind, _, name = key.partition("/")
        if not isinstance(starts, dict) or type(starts.get(name)) is not int or starts[name] < 0:
            raise Unreadable(file.path, f"does not say where tensor '{printable(key)}' begins")
        if form != TensorSpec("F32", (1,) if kind == STEPS else form.shape[:1]):
            raise file.mismatch_error(key, "flat F32")
    return starts
