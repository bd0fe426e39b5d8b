"""Schema of a sweep's YAML file: an experiment or a finished run, the values tried, and the labels of settings."""

import itertools
import json
import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, model_validator

from hpcddm.config.schema import Name, Positive, StrictModel, inner_error
from hpcddm.files.atomic import digest

EVALUATION = "evaluate."
TUNED = ("evaluate.images", "evaluate.first_sample")
REPORTED = "reported"
"""Key of a setting of `tune` that reports the arm for which it was chosen."""
MAX_LABEL = 100
"""Largest number of characters of a setting's label: it is a folder's name."""

Values = Annotated[list[Any], Field(min_length=1)]
Setting = dict[str, Any]
Listed = list[Setting]


class TuneSettings(StrictModel):
    """Choice of the best setting of every arm."""

    images: Positive
    """Number of samples by which settings are judged; the best ones are reported by the samples after these."""


class SweepFile(StrictModel):
    """Content of a sweep's YAML file; keys are dotted keys of the experiment."""

    name: Name
    experiment: str | None = None
    run: str | None = None
    """Folder of a finished run whose evaluation is repeated with other settings."""
    tune: TuneSettings | None = None
    set: Setting = {}
    """Values that all settings have in common."""
    grid: dict[str, Values] = {}
    """Values by key, tried in all combinations."""
    zip: dict[str, Values] = {}
    """Values by key, tried together: the first of all keys, then the second ones, and so on."""
    list: Listed = []
    """Settings tried one by one."""

    @model_validator(mode="after")
    def _is_a_sweep(self) -> "SweepFile":
        lengths = {key: len(values) for key, values in self.zip.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            raise inner_error(f"zip: needs as many values of every key; {counts}")
        places = {"set": self.set, "grid": self.grid, "zip": self.zip, "list": self._listed_keys()}
        for (place, first), (other, second) in itertools.combinations(places.items(), 2):
            for key in (key for key in first if key in second):
                raise inner_error(f"{key}: is in {place} and in {other}")
        if not (self.grid or self.zip or self.list):
            raise inner_error("needs grid, zip or list: nothing is varied")
        if (self.experiment is None) == (self.run is None):
            raise inner_error("needs either experiment or run")
        for key in (*self.set, *self.varied):
            if self.run is not None and not key.startswith(EVALUATION):
                remedy = "to train again, write experiment instead of run"
                raise inner_error(f"{key}: with run, only keys of {EVALUATION}* can vary; {remedy}")
            if self.tune is not None and key in TUNED:
                raise inner_error(f"{key}: with tune, the sweep sets it")
        if self.tune is not None and self.run is None:
            raise inner_error("tune: needs run, a finished run whose settings it chooses")
        return self

    def _listed_keys(self) -> dict[str, None]:
        return dict.fromkeys(key for setting in self.list for key in setting)

    @property
    def varied(self) -> dict[str, None]:
        """Keys that differ between settings, in the order of the file."""
        return dict.fromkeys([*self.grid, *self.zip, *self._listed_keys()])

    def settings(self) -> Iterable[Setting]:
        """Yield the product of grid, zip and list."""
        grid = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        zipped = [dict(zip(self.zip, values, strict=True)) for values in zip(*self.zip.values(), strict=True)]
        for parts in itertools.product(grid, zipped or [{}], self.list or [{}]):
            yield parts[0] | parts[1] | parts[2]


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Shorten every dotted key to the fewest of its last parts that differ from those of all others."""
    keys = list(keys)
    short = {}
    for key in keys:
        parts = key.split(".")
        for count in range(1, len(parts) + 1):
            short[key] = ".".join(parts[-count:])
            if sum(f".{other}".endswith(f".{short[key]}") for other in keys) == 1:
                break
    return short


def label_of(setting: Setting, short: dict[str, str]) -> str:
    """Make a folder's name for a setting, for instance 'guidance=1.5,steps=8'; long ones end in a hash."""
    joined = ",".join(f"{short[key]}={_word(value)}" for key, value in setting.items())
    label = re.sub(r"[^A-Za-z0-9_.,=+-]", "_", joined) or "as-is"
    return label if len(label) <= MAX_LABEL else hashed_label(label, setting)


def hashed_label(label: str, setting: Setting) -> str:
    """Cut a label, and end it in a hash of its setting."""
    return f"{label[: MAX_LABEL - 9]}-{digest(setting)[:8]}"


def _word(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(_word, value))
    if isinstance(value, dict):
        return "+".join(_word(part) for part in value.values())
    return value if isinstance(value, str) else json.dumps(value, default=str)
