"""Defaults of one run: filled in once, printed, and kept with the run, which no later default changes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError
from hpcddm.errors.printing import echo
from hpcddm.files import atomic, checked_reads
from hpcddm.files.atomic import digest
from hpcddm.files.checked_reads import Unreadable
from hpcddm.launch import experiment_defaults
from hpcddm.launch.load_experiment import experiment_values, set_value
from hpcddm.runs.manifest import flatten
from hpcddm.runs.run_dir import RunDir

BASIS = (
    "data",
    "cluster",
    "experts.model",
    "router.model",
    "evaluators.extractor.model",
    "evaluators.classifier.model",
)
"""Settings that defaults depend on, except images of trainings: a continued training keeps its warm-up."""
NO_BASIS = "data.class_names"
"""Key among them on which no default depends."""
SHOWN = ("data.image_size", "encode.encoder", "cluster.experts", "experts.objective.name")
"""Further settings without which nothing trains, whose defaults depend on nothing."""


@dataclass(frozen=True)
class Defaults:
    """Settings that neither the file nor the command line names."""

    basis: str
    """Hash of the settings on which they depend."""
    values: dict[str, Any]
    """Values by dotted key that a run keeps."""
    shown: list[str]
    """These and others as lines of YAML, one for each section."""

    def store(self, run: RunDir) -> None:
        """Keep them with the run."""
        if self.values:
            atomic.write_json(run.defaults, {"of": self.basis, "values": self.values})

    def print(self) -> None:
        """Print them; nothing for an experiment that names all."""
        if self.shown:
            echo("defaults, which a run keeps; to change one, name it in the YAML file, or as KEY=VALUE:")
            echo(*(f"  {line}" for line in self.shown))


def load_for_run(name: str, overrides: tuple[str, ...], run_dir: Path | None) -> tuple[Experiment, RunDir, Defaults]:
    """Read an experiment for its run; return it with the run and its defaults.

    run_dir: None for runs/<the experiment's name>. Where the run has kept defaults of the same data, clusters and
    models, these count, and not today's. Raises `ConfigError` as `load_experiment` does.
    """
    path, values, origins = experiment_values(name, overrides)
    given, basis = flatten(values), _basis(values)
    run = RunDir(run_dir or Path("runs") / str(values.get("name") or experiment_defaults.experiment_name(path.stem)))
    _fill_kept(values, given, basis, run)
    experiment_defaults.fill_in(values, path.stem)
    experiment = validate_experiment(values, origins)
    filled = {key: value for key, value in flatten(values).items() if key not in given or given[key] != value}
    # That a run trains no extractor follows from the other settings again.
    filled = {key: value for key, value in filled.items() if value is not None}
    return experiment, run, Defaults(basis, filled, _lines(filled, given, experiment))


def _lines(filled: dict[str, Any], given: dict[str, Any], experiment: Experiment) -> list[str]:
    """Format defaults in the order of the experiment's keys."""
    whole = flatten(experiment.model_dump(mode="json"))
    free = [key for key in SHOWN if not any(f"{name}.".startswith(f"{key}.") for name in given)]
    keys = [key for key in whole if key in filled or any(f"{key}.".startswith(f"{one}.") for one in free)]
    nested: dict[str, Any] = {}
    for key in keys:
        set_value(nested, key, whole[key], key)
    nested.pop("name", None)
    return [f"{key}: {flow_text(value)}" for key, value in nested.items()]


def _fill_kept(values: dict[str, Any], given: dict[str, Any], basis: str, run: RunDir) -> None:
    """Fill in the run's stored defaults that still fit."""
    try:
        kept = checked_reads.read_mapping(run.defaults) or {}
    except Unreadable as error:
        raise ConfigError(f"{error}; remove it to take today's defaults") from None
    if kept.get("of") != basis or not isinstance(kept.get("values"), dict):
        return
    for key, value in kept["values"].items():
        if not any(f"{one}.".startswith(f"{key}.") or key.startswith(f"{one}.") for one in given):
            set_value(values, key, value, f"{run.defaults}: {key}")


def _basis(values: dict[str, Any]) -> str:
    flat = flatten(values)
    counted = {key: value for key, value in flat.items() if any(f"{key}.".startswith(f"{b}.") for b in BASIS)}
    return digest({key: value for key, value in counted.items() if key != NO_BASIS})


def flow_text(value: Any) -> str:
    """Return a value as YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).removesuffix("\n...\n").strip()
