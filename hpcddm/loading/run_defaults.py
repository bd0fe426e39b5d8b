"""Defaults of one run: filled in once, printed, and kept with the run, which no later default changes."""

from collections.abc import Collection
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from hpcddm.config import paths
from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError
from hpcddm.errors.printing import echo, warn
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.loading import experiment_defaults
from hpcddm.loading.experiment_defaults import SHARES, Shares
from hpcddm.loading.load_experiment import experiment_values, resolve_paths, set_value
from hpcddm.runs import manifest, training_states
from hpcddm.runs.manifest import flatten
from hpcddm.runs.run_dir import RunDir, relative_to_run

TRAINED = {
    "experts.training.": ("train/*", "distill/*"),
    "router.training.": ("router",),
    "evaluators.extractor.training.": ("evaluators/extractor",),
    "evaluators.classifier.training.": ("evaluators/classifier",),
}
"""Folders of the units that a training with derived values trains, by the prefix of its keys."""
SHOWN = ("data.image_size", "encode.encoder", "cluster.experts", "experts.objective.name")
"""Further settings without which nothing trains, whose defaults depend on nothing."""


@dataclass(frozen=True)
class StoredDefaults:
    """Content of a run's file of defaults."""

    given: dict[str, Any]
    """Settings that the file or the command line names, from which the others follow."""
    values: dict[str, Any]
    """Values by dotted key that a run keeps."""
    shares: Shares
    """Shares from which further values follow."""


@dataclass(frozen=True)
class Defaults:
    """Settings that neither the file nor the command line names."""

    kept: StoredDefaults
    shown: list[str]
    """Values as lines of YAML, one for each section."""
    left: dict[str, Any]
    """Values that would follow for trainings that keep theirs, by dotted key."""

    def store(self, run: RunDir) -> None:
        """Keep them with the run, whose paths are relative."""
        if self.kept.values:
            kept = asdict(self.kept)
            for holder, key in paths.find_paths(kept["given"], Experiment):
                holder[key] = relative_to_run(Path(holder[key]), run)
            atomic.write_json(run.defaults, kept)

    def print(self) -> None:
        """Print them; nothing for an experiment that names all."""
        if self.shown:
            echo("defaults, which a run keeps; to change one, name it in the YAML file, or as KEY=VALUE:")
            echo(*(f"  {line}" for line in self.shown))
        if self.left:
            named = " ".join(f"{key}={flow_text(value)}" for key, value in self.left.items())
            warn(
                "note: trainings that have begun keep values that follow from changed settings; to train again with"
                f" those that follow now, append {named}"
            )


def load_for_run(name: str, overrides: tuple[str, ...], run_dir: Path | None) -> tuple[Experiment, RunDir, Defaults]:
    """Read an experiment for its run; return it with the run and its defaults.

    run_dir: None for runs/<the experiment's name>. Where the run has kept defaults, these count, and not today's,
    except those that follow from a changed setting. Raises `ConfigError` as `load_experiment` does.
    """
    path, values, origins = experiment_values(name, overrides)
    given, named = deepcopy(values), flatten(values)
    run = RunDir(run_dir or Path("runs") / str(values.get("name") or experiment_defaults.experiment_name(path.stem)))
    left, shares, before = _fill_kept(values, named, path.stem, run)
    experiment_defaults.fill_in(values, path.stem, shares)
    experiment = validate_experiment(values, origins)
    filled = {key: value for key, value in flatten(values).items() if key not in named or named[key] != value}
    # That a run trains no extractor follows from the other settings again.
    filled = {key: value for key, value in filled.items() if value is not None}
    # As long as values are left, they are compared with what they followed from.
    kept = StoredDefaults(before if left else given, filled, shares)
    return experiment, run, Defaults(kept, _lines(filled, named, experiment), left)


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


def _fill_kept(
    values: dict[str, Any], named: dict[str, Any], stem: str, run: RunDir
) -> tuple[dict[str, Any], Shares, dict[str, Any]]:
    """Fill in the run's stored defaults, except those that follow from changed settings and were not trained with.

    Returns those that would follow for trainings that keep theirs, the run's shares, and the settings from which its
    defaults followed.
    """
    try:
        kept = checked_reads.read_mapping(run.defaults, StoredDefaults)
    except Unreadable as error:
        raise ConfigError(f"{error}; remove it to take today's defaults") from None
    if kept is None:
        return {}, SHARES, {}
    shares, given, now = Shares(**kept["shares"]), kept["given"], deepcopy(values)
    resolve_paths(given, run.root)
    _follow_moved_data(given, now)
    before = deepcopy(given)
    if before != now:
        for derived in (before, now):
            experiment_defaults.fill_in(derived, stem, shares)
    followed, follows, left = flatten(before), flatten(now), dict[str, Any]()
    changed = [key for key in followed.keys() | follows.keys() if followed.get(key) != follows.get(key)]
    for key, value in kept["values"].items():
        if any(f"{one}.".startswith(f"{key}.") or key.startswith(f"{one}.") for one in named):
            continue
        is_same = key not in changed
        if is_same or (key in follows and _is_trained(run, key, changed)):
            set_value(values, key, value, f"{run.defaults}: {key}")
            left |= {} if is_same or follows[key] == value else {key: follows[key]}
    return left, shares, given


def _follow_moved_data(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Take today's paths for those of a run that are not there any more, since it or its data were moved."""
    pairs = zip(paths.find_paths(before, Experiment), paths.find_paths(now, Experiment), strict=False)
    for (holder, key), (other, same) in pairs:
        if key == same and not Path(holder[key]).exists():
            holder[key] = other[same]


def _is_trained(run: RunDir, key: str, changed: Collection[str]) -> bool:
    """Tell if a training that uses a value goes on: it is complete or has a state, of the same data and network."""
    prefix = next((prefix for prefix in TRAINED if key.startswith(prefix)), None)
    if prefix is None:
        return False
    other_network = ("data.", "cluster.", prefix.replace(".training.", ".model."))
    if any(one.startswith(other_network) and one != "data.class_names" for one in changed):
        return False
    folders = TRAINED[prefix]
    names = (manifest.FILE_NAME, f"{training_states.FOLDER}/*/{training_states.STATE}")
    return any(any(run.root.glob(f"{folder}/{name}")) for folder in folders for name in names)


def flow_text(value: Any) -> str:
    """Return a value as YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).removesuffix("\n...\n").strip()
