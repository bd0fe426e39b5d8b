"""The experiment that a run has stored: with paths relative to the run in its file, absolute for whoever uses it."""

from pathlib import Path
from typing import Any

from hpcddm.config import paths, variant_files
from hpcddm.config.cross_checks import validated
from hpcddm.config.experiment import Experiment
from hpcddm.config.vouching import SWEEP_FILE
from hpcddm.errors import ConfigError
from hpcddm.files import reading
from hpcddm.files.reading import Unreadable
from hpcddm.runs.layout import RunDir, relative_to_run


def stored_experiment(run: RunDir) -> Experiment:
    """Load the experiment of an existing run.

    Raises `ConfigError` when the folder holds no run.
    """
    try:
        values = stored_values(run)
    except Unreadable as error:
        raise ConfigError(str(error)) from None
    if values is None and is_sweep(run):
        raise ConfigError(
            f"{run.root}: a sweep; each of its settings is a run, {run.root}/SETTING; see {run.root}/table.csv"
        )
    if values is None:
        raise ConfigError(f"{run.root}: no run here ({run.experiment.name} is missing)")
    try:
        return validated(values, str(run.experiment))
    except ConfigError as error:
        if variant_files.own_folder() is None and "unknown name" in str(error):
            raise ConfigError(
                f"{error}; where it is a variant of your own, set {variant_files.VARIABLE} to its folder"
            ) from None
        raise


def stored_values(run: RunDir) -> dict[str, Any] | None:
    """Read the values of the experiment that a run has stored; raises `Unreadable` where the file is damaged."""
    return reading.read_mapping(run.experiment, most_bytes=reading.MANIFEST_BYTES)


def is_sweep(run: RunDir) -> bool:
    """Tell if the folder is the home of a sweep, whose settings are runs below it."""
    return (run.root / SWEEP_FILE).exists()


def within_run(experiment: Experiment, run: RunDir) -> Experiment:
    """Return the experiment as a run stores it: all paths relative to the run."""
    return paths.changed(experiment, lambda path: relative_to_run(Path(path), run))


def out_of_run(experiment: Experiment, run: RunDir) -> Experiment:
    """Return the experiment that a run has stored with all paths absolute."""
    return paths.located(experiment, run.root)
