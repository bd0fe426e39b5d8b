"""Settings of a sweep, read from its YAML file: an experiment, and the values that are tried."""

import itertools
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hpcddm.config.cross_checks import validated
from hpcddm.config.experiment import Experiment
from hpcddm.config.mistakes import Origins
from hpcddm.config.package_data import find_yaml
from hpcddm.config.schema import Name, StrictModel, validate
from hpcddm.config.strict_yaml import parse_value, read_yaml
from hpcddm.errors import ConfigError
from hpcddm.files.atomic import digest
from hpcddm.launch import experiment_defaults
from hpcddm.launch.load_experiment import filled_file, resolve_paths, set_value

FOLDER = "experiments/sweeps"
MAX_LABEL = 100
"""Largest number of characters of a setting's label: it is a folder's name."""

Values = Annotated[list[Any], Field(min_length=1)]
Setting = dict[str, Any]
Listed = list[Setting]


class SweepFile(StrictModel):
    """Content of a sweep's YAML file; keys are dotted keys of the experiment."""

    name: Name
    experiment: str
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
            raise PydanticCustomError("inner", "{text}", {"text": f"zip: needs as many values of every key; {counts}"})
        places = {"set": self.set, "grid": self.grid, "zip": self.zip, "list": self._listed_keys()}
        for (place, first), (other, second) in itertools.combinations(places.items(), 2):
            for key in first:
                if key in second:
                    text = f"{key}: stands in {place} and in {other}"
                    raise PydanticCustomError("inner", "{text}", {"text": text})
        if not (self.grid or self.zip or self.list):
            raise PydanticCustomError("inner", "{text}", {"text": "needs grid, zip or list: nothing is varied"})
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


@dataclass(frozen=True)
class Sweep:
    """Settings and experiments of a sweep by label, which is also the name of a setting's run folder."""

    name: str
    file: Path
    base: Path
    """File of the experiment that its settings vary."""
    settings: dict[str, Setting]
    experiments: dict[str, Experiment]
    folded: list[tuple[str, str]]
    """Labels of settings that give the same experiment as an earlier one: (left out, taken)."""


def read_sweep(name: str, base: str | None = None) -> Sweep:
    """Read a sweep by name or path and validate every setting.

    base: path of the experiment that the file names, if already resolved.
    Raises `ConfigError` with the file, the setting, the key and the valid values.
    """
    path = find_yaml(name, FOLDER, "sweep")
    content, own_lines = read_yaml(path)
    file = validate(SweepFile, content, own_lines)
    place = _base_file(file, path) if base is None else Path(base)
    values, origins = _base(file, own_lines, place)
    short = short_names(file.varied)
    sweep = Sweep(file.name, path, place, {}, {}, [])
    labels: dict[str, str] = {}
    for setting in file.settings():
        label = label_of(setting, short)
        experiment = _experiment(values, origins, setting, own_lines, label)
        # The same in every key, defaults filled in, however it is written.
        whole = experiment.model_dump_json()
        if whole in labels:
            sweep.folded.append((label, labels[whole]))
            continue
        if label in sweep.settings:
            label = _hashed(label, setting)
        labels[whole] = label
        sweep.settings[label], sweep.experiments[label] = setting, experiment
    return sweep


def matching(sweep: Sweep, only: Collection[str]) -> set[str]:
    """Return the labels of some settings; only: KEY=VALUE or LABEL, of several values of a key, or labels, any.

    Raises `ConfigError` for a key that the sweep does not vary, and where no setting has the values.
    """
    wanted: dict[str, set[str]] = {}
    varied = dict.fromkeys(key for setting in sweep.settings.values() for key in setting)
    for given in only:
        key, is_given, text = given.partition("=")
        value = parse_value(key, text, f"--only {given}") if is_given and key in varied else None
        having = {label for label, own in sweep.settings.items() if key in own and is_given and own[key] == value}
        if not having and given in sweep.settings:
            key, having = "label", {given}
        elif not is_given or key not in varied:
            raise ConfigError(
                f"--only {given}: needs a setting's label, or KEY=VALUE with a key of {sweep.file}: {', '.join(varied)}"
            )
        wanted.setdefault(key, set()).update(having)
    labels = set(sweep.settings).intersection(*wanted.values())
    if not labels:
        raise ConfigError(f"--only {' --only '.join(only)}: no setting of {sweep.file} has these values")
    return labels


def _base_file(file: SweepFile, path: Path) -> Path:
    """Return the experiment's file; its path is relative to the sweep's file."""
    beside = path.parent / file.experiment
    return beside if beside.is_file() else find_yaml(file.experiment, "experiments", "experiment")


def _base(file: SweepFile, own_lines: Origins, place: Path) -> tuple[dict[str, Any], Origins]:
    """Read the experiment's values from the file at `place` and set those that all settings share."""
    values, origins = read_yaml(place)
    resolve_paths(values, place.resolve().parent)
    origins = origins.before_changes(lambda: filled_file(place))
    for key, value in file.set.items():
        text = f"{own_lines.line(('set', key))}: set"
        set_value(values, key, value, text)
        origins = origins.changed(key, text)
    return values, origins


def _experiment(
    values: dict[str, Any], origins: Origins, setting: Setting, own_lines: Origins, label: str
) -> Experiment:
    """Make the experiment of a setting; own_lines: of the sweep's file, which mistakes are blamed on."""
    merged = dict(values)
    for key, value in setting.items():
        section = next((name for name in ("grid", "zip") if (name, key) in own_lines.lines), "list")
        place = f"{own_lines.line((section, key))}: setting {label}"
        set_value(merged, key, value, place)
        origins = origins.changed(key, place)
    resolve_paths(merged, Path(own_lines.file).resolve().parent)
    experiment_defaults.fill(merged, Path(origins.file).stem)
    return validated(merged, origins)


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
    label = re.sub(r"[^A-Za-z0-9_.,=+-]", "_", joined) or "as-it-stands"
    return label if len(label) <= MAX_LABEL else _hashed(label, setting)


def _hashed(label: str, setting: Setting) -> str:
    return f"{label[: MAX_LABEL - 9]}-{digest(setting)[:8]}"


def _word(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(_word, value))
    if isinstance(value, dict):
        return "+".join(_word(part) for part in value.values())
    return value if isinstance(value, str) else json.dumps(value, default=str)
