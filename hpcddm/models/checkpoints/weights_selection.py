"""Weights in what trainings save: the average before the raw ones, under names without the prefixes of wrappers."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from hpcddm.errors import UserError

AVERAGE = re.compile(
    r"(?i:(^|[^a-z])(ema|swa|avg|average[ds]?|shadow|polyak)([^a-z]|$))"
    r"|[a-z](EMA|Ema|SWA|Swa)([^a-z]|$)|(^|[^A-Za-z])(ema|swa|avg)[A-Z]"
)
"""Names of averages, such as ema, model_ema, modelEMA, emaModel, ema_state_dict, ema_0.9999, shadow_params."""
RAW = ("model", "model_state_dict", "state_dict", "module", "net")
"""Entries that hold the weights as the optimiser has them; of several, the first is taken."""

SHOWN = 8
"""Number of other entries that a note names."""


def select_weights(values: Any, file: Path) -> tuple[dict[str, Tensor], str]:
    """Take the weights out of the entries of a file: the averaged ones if it has them.

    An average that is a list gets the names of the raw weights beside it, in their order.
    Returns the tensors by name, and a note that says which were taken and which were not.
    Raises `UserError` naming the entry when there are several averages, or when one has no names.
    """
    _require_values(values, file)
    entries, weights, others = _descend(values, file, averages=True)
    taken = f"'{' > '.join(entries)}'" if entries else "all of the file, which does not tell if they are averages"
    if not _is_state_dict(weights):
        weights, raw = _name_by_raw_weights(weights, values, taken if entries else "the whole file", file)
        taken += f", a list that has the names of '{raw}' in their order"
    return dict(weights), _note(taken, others)


def strip_prefixes(
    tensors: dict[str, Tensor], is_layout: Callable[[dict[str, Tensor]], bool]
) -> tuple[dict[str, Tensor], list[str]]:
    """Take prefixes off the names until they are those of a layout, and counters out; return notes on both.

    A prefix is the first part of all names, as DistributedDataParallel, torch.compile and Lightning put it there. Where
    one of several first parts is that of an average, as in a module that holds network and average, the average is
    taken. Names that become those of no layout are returned as they are, or as the average's.
    """
    counters = [name for name, values in tensors.items() if values.numel() == 1 and not values.is_floating_point()]
    tensors = {name: values for name, values in tensors.items() if name not in counters}
    notes = [f"counters, which are not weights: {_quoted(counters)}"] if counters else []
    inner, prefix = tensors, ""
    narrowed: list[str] = []
    while not is_layout(inner):
        heads = list(dict.fromkeys(name.partition(".")[0] for name in inner))
        taken = heads if len(heads) == 1 else [head for head in heads if AVERAGE.search(head)]
        if len(taken) != 1 or not all("." in name for name in inner):
            return (inner, [*notes, *narrowed]) if narrowed else (tensors, notes)
        start = f"{taken[0]}."
        if len(heads) > 1:
            others = [f"{prefix}{head}." for head in heads if head != taken[0]]
            narrowed.append(_note(f"names that begin with '{prefix}{start}'", others))
        inner = {name.removeprefix(start): values for name, values in inner.items() if name.startswith(start)}
        prefix += start
    removed = [f"prefix '{prefix}' taken off the names of the tensors"] if prefix else []
    return inner, [*notes, *narrowed, *removed]


def _descend(values: Any, file: Path, *, averages: bool) -> tuple[list[str], Any, list[str]]:
    """Follow entries to a state dict or a list of tensors; return their names, it, and what else holds tensors.

    averages: take an average before the raw weights, however deep it is.
    """
    entries: list[str] = []
    others: list[str] = []
    while not _is_state_dict(values) and not _is_list(values):
        paths = list(_average_paths(values)) if averages else []
        if len(paths) > 1:
            several = _quoted([" > ".join([*entries, *path]) for path in paths])
            raise UserError(f"{file}: holds several averages, {several}; save one of them alone")
        raw = [[key] for key in RAW if isinstance(values, Mapping) and _holds_weights(values.get(key))]
        if not paths and not raw:
            place = f"'{' > '.join(entries)}' " if entries else ""
            raise UserError(f"{file}: {place}needs a state dict, a mapping from names to tensors{_advice(values)}")
        for key in (paths or raw)[0]:
            others += [str(other) for other in values if other != key and _holds_weights([values[other]])]
            values = values[key]
            entries.append(key)
    return entries, values, others


def _advice(values: Any) -> str:
    """Return the next step for a file whose weights are in no entry that is known; '' where it holds none."""
    entries = values.items() if isinstance(values, Mapping) else ()
    holders = _listed([str(key) for key, value in entries if _holds_weights(value)])
    how = "save the entry that you mean under the name 'model', or 'ema' for an average"
    return f"; tensors are in {holders}: {how}" if holders else ""


def _require_values(values: Any, file: Path) -> None:
    """Raise `UserError` for a state dict whose tensors are all empty."""
    named = [values, *(values.get(key) for key in RAW)] if isinstance(values, Mapping) else []
    if any(_is_state_dict(one) and one and not any(tensor.numel() for tensor in one.values()) for one in named):
        raise UserError(
            f"{file}: its tensors are empty, as ZeRO-3 of DeepSpeed leaves them; merge the parts of all ranks first, by"
            " the zero_to_fp32.py beside them"
        )


def _average_paths(values: Any) -> Iterator[list[str]]:
    """List the paths of entries to averages that hold weights; what is inside one is not looked at."""
    for key, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(key, str) and AVERAGE.search(key) and _holds_weights(value):
            yield [key]
        else:
            yield from ([str(key), *path] for path in _average_paths(value))


def _name_by_raw_weights(
    average: Sequence[Tensor], values: Any, place: str, file: Path
) -> tuple[dict[str, Tensor], str]:
    """Give the tensors of a list the names of the raw weights beside it; return their entry, too.

    Raises `UserError` unless number and shapes are the same in the same order.
    """

    def refused(reason: str) -> UserError:
        return UserError(f"{file}: {place} is a list of tensors without names, and {reason}; save it as a state dict")

    try:
        entries, raw, _ = _descend(values, file, averages=False)
    except UserError:
        raise refused(f"no entry {', '.join(RAW)} beside it has them") from None
    beside = " > ".join(entries)
    if not _is_state_dict(raw):
        raise refused(f"so is '{beside}'" if entries else "nothing beside it has them")
    if len(raw) != len(average):
        raise refused(f"has {len(average)} where '{beside}' has {len(raw)}")
    for (name, other), tensor in zip(raw.items(), average, strict=True):
        if tensor.shape != other.shape:
            raise refused(f"has {tuple(tensor.shape)} where '{name}' of '{beside}' is {tuple(other.shape)}")
    return dict(zip(raw, average, strict=True)), beside


def _is_state_dict(values: Any) -> bool:
    """Tell if these are tensors by name; an empty mapping is one, too."""
    return isinstance(values, Mapping) and all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in values.items()
    )


def _is_list(values: Any) -> bool:
    return isinstance(values, list | tuple) and bool(values) and all(isinstance(value, Tensor) for value in values)


def _holds_weights(values: Any) -> bool:
    """Tell if a mapping or list has a tensor of more than one number in it, however deep."""
    if not isinstance(values, Mapping | list | tuple):
        return False
    parts = values.values() if isinstance(values, Mapping) else values
    return any(part.numel() > 1 if isinstance(part, Tensor) else _holds_weights(part) for part in parts)


def _note(taken: str, others: list[str]) -> str:
    return f"weights taken: {taken}" + (f"; not taken: {_listed(others)}" if others else "")


def _listed(names: list[str]) -> str:
    return _quoted(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _quoted(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
