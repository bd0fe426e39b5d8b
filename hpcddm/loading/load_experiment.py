"""Reads experiments from YAML, with overrides from the command line."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from hpcddm.config import paths, pretrained
from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.experiment import Experiment
from hpcddm.config.package_data import find_yaml
from hpcddm.config.strict_yaml import parse_value, read_yaml
from hpcddm.config.validation_errors import Origins
from hpcddm.errors import ConfigError
from hpcddm.loading import experiment_defaults
from hpcddm.sources.downloads import idx_files


def load_experiment(name: str, overrides: tuple[str, ...] = ()) -> Experiment:
    """Read an experiment by name or path; `overrides` are `key.key=value`, the value in YAML.

    Raises `ConfigError` with the file, the key and the valid values.
    """
    path, values, origins = experiment_values(name, overrides)
    experiment_defaults.fill_in(values, path.stem)
    return validate_experiment(values, origins)


def experiment_values(name: str, overrides: tuple[str, ...]) -> tuple[Path, dict[str, Any], Origins]:
    """Read the values of an experiment's file and of overrides, with absolute paths and without defaults."""
    path = find_yaml(name, "experiments", "experiment")
    values, origins = read_file(path)
    return path, values, apply_overrides(values, overrides, origins)


def apply_overrides(values: dict[str, Any], overrides: Collection[str], origins: Origins) -> Origins:
    """Set the values of overrides in `values`, with absolute paths, and return the origins with these.

    Raises `ConfigError` for an override that is not `key.key=value`.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"'{override}': an override is key.key=value, for instance experts.training.images=30000")
        place = f"'{override}'"
        set_value(values, key, parse_value(key, text, place), place)
        origins = origins.with_change(key, place)
    resolve_paths(values, Path.cwd())
    return origins


def read_file(path: Path) -> tuple[dict[str, Any], Origins]:
    """Read the values of an experiment's file, with absolute paths and without defaults."""
    values, origins = read_yaml(path)
    resolve_paths(values, path.resolve().parent)
    return values, origins


def resolve_paths(values: dict[str, Any], start: Path) -> None:
    """Make all relative paths absolute, relative to `start`; $HPCDDM_CACHE at the start is the cache's folder.

    Raises `ConfigError` with the key of a path that cannot be one: of a user who is not there, or with a NUL.
    """
    for holder, key in paths.find_paths(values, Experiment):
        try:
            holder[key] = str(idx_files.fetched((start / pretrained.expanded(holder[key])).resolve()))
        except (RuntimeError, ValueError) as error:
            raise ConfigError(f"{key}: {holder[key]!r} cannot be a path ({error})") from None


def set_value(values: dict[str, Any], key: str, value: Any, place: str) -> None:
    """Set a dotted key in nested `values`; the mappings and lists on its way are replaced by changed copies.

    Raises `ConfigError` with `place` when the key leads through a value, or to no entry of a list.
    """
    *parents, last = key.split(".")
    holder: Any = values
    for parent, following in zip(parents, key.split(".")[1:], strict=True):
        own: Any = int(parent) if isinstance(holder, list) else parent
        inner = holder[own] if isinstance(holder, list) else holder.get(own)
        # A section whose keys are all comments has no value.
        inner = {} if inner is None else inner
        if isinstance(inner, list) and following not in map(str, range(len(inner))):
            raise ConfigError(f"{place}: {parent} is a list of {len(inner)}; its entries are numbered from 0")
        if not isinstance(inner, dict | list):
            raise ConfigError(f"{place}: {parent} holds a value and no further keys")
        # A copy, because an alias puts one mapping in several places of a file.
        holder[own] = inner.copy()
        holder = holder[own]
    holder[int(last) if isinstance(holder, list) else last] = value
