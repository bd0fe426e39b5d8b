"""Reads sweeps from YAML: the experiment of every setting."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.experiment import Experiment
from hpcddm.config.package_data import find_yaml
from hpcddm.config.sampling import parse_strategy
from hpcddm.config.schema import validate
from hpcddm.config.strict_yaml import parse_value, read_yaml
from hpcddm.config.sweep import (
    EVALUATION,
    MAX_LABEL,
    REPORTED,
    TUNED,
    Setting,
    SweepFile,
    hashed_label,
    label_of,
    short_names,
)
from hpcddm.config.validation_errors import Origins
from hpcddm.errors import ConfigError
from hpcddm.loading import experiment_defaults
from hpcddm.loading.load_experiment import read_file, resolve_paths, set_value
from hpcddm.runs.run_dir import RunDir

FOLDER = "experiments/sweeps"


@dataclass(frozen=True)
class Sweep:
    """Settings and experiments of a sweep by label, which is also the name of a setting's run folder."""

    name: str
    file: Path
    base: Path
    """File of the experiment that its settings vary."""
    run: RunDir | None
    """Finished run whose evaluation is repeated; its experiment is the base."""
    reported_images: int | None
    """With `tune`, the number of samples by which the chosen settings are reported."""
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
    place = Path(base) if base is not None else _base_file(file, path.parent)
    values, origins = _base(file, own_lines, place)
    short = short_names(file.varied)
    run = None if file.run is None else RunDir(place.resolve().parent)
    sweep, tuned = Sweep(file.name, path, place, run, None, {}, {}, []), Setting()
    if file.tune is not None:
        evaluate = _experiment(values, origins, {}, own_lines, "").evaluate
        tuned = {"evaluate.images": file.tune.images, "evaluate.first_sample": evaluate.first_sample}
        text = f"{own_lines.line(('tune', 'images'))}: tune"
        set_value(values, "evaluate.images", file.tune.images, text)
        sweep, origins = replace(sweep, reported_images=evaluate.images), origins.with_change("evaluate.images", text)
    labels: dict[str, str] = {}
    for setting in file.settings():
        label = label_of(setting, short)
        experiment = _experiment(values, origins, setting, own_lines, label)
        # Settings are the same if all keys agree once defaults are filled in.
        whole = experiment.model_dump_json()
        if whole in labels:
            sweep.folded.append((label, labels[whole]))
            continue
        if label in sweep.settings:
            label = hashed_label(label, setting)
        labels[whole] = label
        sweep.settings[label], sweep.experiments[label] = setting | tuned, experiment
        if sweep.reported_images is not None:
            # What may report a setting is checked before anything is drawn.
            with_reported(sweep, {strategy: label for strategy in experiment.evaluate.strategies})
    return sweep


def with_reported(sweep: Sweep, chosen: Mapping[str, str]) -> Sweep:
    """Add to a sweep with `tune` the settings that report the chosen ones, by other samples.

    Args:
        sweep: The sweep.
        chosen: Label of the setting that was chosen for an arm, by arm.

    Returns:
        The sweep with one more setting for each arm.
    """
    settings, experiments = dict(sweep.settings), dict(sweep.experiments)
    for arm, label in chosen.items():
        values = sweep.experiments[label].model_dump()
        evaluate = values["evaluate"]
        evaluate |= {"images": sweep.reported_images, "first_sample": evaluate["first_sample"] + evaluate["images"]}
        strategies = [name for name in evaluate["strategies"] if parse_strategy(name).label == arm]
        # A dense arm is drawn beside one strategy.
        evaluate["strategies"] = strategies or evaluate["strategies"][:1]
        setting = sweep.settings[label] | {key: evaluate[key.removeprefix(EVALUATION)] for key in TUNED}
        setting[REPORTED] = arm
        name = f"{label},{REPORTED}={arm}"
        name = name if len(name) <= MAX_LABEL else hashed_label(name, setting)
        settings[name], experiments[name] = setting, validate_experiment(values, f"{sweep.file}: setting {name}")
    return replace(sweep, settings=settings, experiments=experiments)


def matching_labels(sweep: Sweep, only: Collection[str]) -> set[str]:
    """Return the labels of the settings that `only` picks.

    Each entry is KEY=VALUE or a label; several values of one key, or several labels, are alternatives.

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


def _base_file(file: SweepFile, folder: Path) -> Path:
    """Find the file of the experiment, whose path is relative to the sweep's folder; raises `ConfigError`."""
    if file.run is None:
        beside = folder / str(file.experiment)
        return beside if beside.is_file() else find_yaml(str(file.experiment), "experiments", "experiment")
    run = next((run for run in (RunDir(folder / file.run), RunDir(Path(file.run))) if run.experiment.is_file()), None)
    if run is None:
        places = f"neither relative to {folder} nor to the current folder"
        raise ConfigError(f"run: {file.run}: no run here, {places}; name the folder of a run, such as runs/quickstart")
    return run.experiment


def _base(file: SweepFile, own_lines: Origins, place: Path) -> tuple[dict[str, Any], Origins]:
    """Read the experiment's values from the file at `place` and set those that all settings share."""
    values, origins = read_file(place)
    for key, value in file.set.items():
        text = f"{own_lines.line(('set', key))}: set"
        set_value(values, key, value, text)
        origins = origins.with_change(key, text)
    return values, origins


def _experiment(
    values: dict[str, Any], origins: Origins, setting: Setting, own_lines: Origins, label: str
) -> Experiment:
    """Make the experiment of a setting; own_lines: lines of the sweep's file, named in error messages."""
    merged = dict(values)
    for key, value in setting.items():
        section = next((name for name in ("grid", "zip") if (name, key) in own_lines.lines), "list")
        place = f"{own_lines.line((section, key))}: setting {label}"
        set_value(merged, key, value, place)
        origins = origins.with_change(key, place)
    resolve_paths(merged, Path(own_lines.file).resolve().parent)
    experiment_defaults.fill_in(merged, Path(origins.file).stem)
    return validate_experiment(merged, origins)
