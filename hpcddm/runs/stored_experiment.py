"""Experiment stored in a run: its file holds paths relative to the run; readers get absolute paths."""

from pathlib import Path
from typing import Any

from hpcddm.config import paths, variants
from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError
from hpcddm.errors.next_step import step
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.guarded_writes import SWEEP_FILE
from hpcddm.runs.run_dir import RunDir, relative_to_run


def stored_experiment(run: RunDir) -> Experiment:
    """Load the experiment of an existing run.

    Raises:
        ConfigError: If the folder is not a run, or its experiment is damaged or invalid.
    """
    try:
        values = stored_values(run)
    except Unreadable as error:
        raise ConfigError(str(error)) from None
    if values is None and is_sweep(run):
        reason = f"{run.root}: a sweep; each of its settings is a run, {run.root}/SETTING"
        table = run.root / "table.csv"
        following = f"{reason}; see {table}" if table.exists() else step("hpcddm", "wait", run.root, reason=reason)
        raise ConfigError(str(following))
    if values is None:
        raise ConfigError(f"{run.root}: no run here ({run.experiment.name} is missing)")
    try:
        return validate_experiment(values, str(run.experiment))
    except ConfigError as error:
        if variants.user_folder() is None and "unknown name" in str(error):
            advice = f"where it is a variant of your own, set {variants.VARIANTS_VARIABLE} to its folder"
            raise ConfigError(f"{error}; {advice}") from None
        raise


def stored_values(run: RunDir) -> dict[str, Any] | None:
    """Read the values of a run's experiment without validation; None if the folder is not a run.

    Raises:
        Unreadable: If the file is damaged.
    """
    return checked_reads.read_mapping(run.experiment, max_bytes=checked_reads.MANIFEST_BYTES)


def is_sweep(run: RunDir) -> bool:
    """Return True if the folder belongs to a sweep, whose settings are runs in subfolders."""
    return (run.root / SWEEP_FILE).exists()


def with_relative_paths(experiment: Experiment, run: RunDir) -> Experiment:
    """Return the experiment with all paths relative to the run, as a run stores it."""
    return paths.map_paths(experiment, lambda path: relative_to_run(Path(path), run))


def with_absolute_paths(experiment: Experiment, run: RunDir) -> Experiment:
    """Return a run's stored experiment with all paths absolute."""
    return paths.make_absolute(experiment, run.root)
