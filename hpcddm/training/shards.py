"""Parts of a training state: each rank's values by parameter, which any number of ranks can put together again."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from hpcddm.models.checkpoints.writing import save_tensors

STARTS = "starts"
"""Key in a file's metadata of the first value of each parameter that the file holds, by name, as JSON."""

STEPS = "steps"
"""Kind under which the number of the optimizer's steps stands, one value per slice."""

Shards = Mapping[str, Sequence[torch.Tensor | None]]
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


def write(kinds: Shards, steps: Sequence[float | None], slices: Sequence[Slice], file: Path) -> None:
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


class Stored:
    """Files of all ranks of a training state, read as whole parameters; a context manager."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._paths = list(files)
        self._opened = ExitStack()
        self._parts: dict[str, list[tuple[int, int, Any]]] = {}

    def __enter__(self) -> "Stored":
        for path in self._paths:
            file = self._opened.enter_context(safe_open(path, framework="pt"))
            starts = json.loads(file.metadata()[STARTS])
            for key in file.keys():  # noqa: SIM118
                start = starts[key.partition("/")[2]]
                stop = start + file.get_slice(key).get_shape()[0]
                self._parts.setdefault(key, []).append((start, stop, file))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def kinds(self) -> set[str]:
        """The kinds of which there are values."""
        return {key.partition("/")[0] for key in self._parts} - {STEPS}

    def has(self, kind: str, part: Slice) -> bool:
        """Tell if there are values of this kind of a slice's parameter."""
        return f"{kind}/{part.name}" in self._parts

    def steps(self, part: Slice) -> float | None:
        """Return the optimizer's steps of a slice's parameter; None where there are none."""
        key = f"{STEPS}/{part.name}"
        return next((file.get_tensor(key).item() for _, _, file in self._parts.get(key, ())), None)

    def fill(self, kind: str, part: Slice, values: torch.Tensor) -> None:
        """Set a slice's values, (length,), to those of this kind; raises `RuntimeError` where some are missing."""
        key, filled, stop = f"{kind}/{part.name}", 0, part.start + part.length
        for stored_start, stored_stop, file in self._parts.get(key, ()):
            first, last = max(part.start, stored_start), min(stop, stored_stop)
            if first < last:
                source = file.get_slice(key)[first - stored_start : last - stored_start]
                values[first - part.start : last - part.start].copy_(source)
                filled += last - first
        if filled != part.length:
            raise RuntimeError(f"{kind} of {part.name}: {filled} of the values {part.start} to {stop} are in the state")
