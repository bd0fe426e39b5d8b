"""Reads experiments and sites from YAML, with overrides from the command line."""

import shutil
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from hpcddm import defaults, initial_weights, paths, plugins, pretrained, rooms, weights
from hpcddm.config import Experiment
from hpcddm.data.sources.settings import SourceSettings
from hpcddm.errors import ConfigError, UserError
from hpcddm.fetched import idx_files
from hpcddm.missing_images import with_remedy
from hpcddm.mistakes import Origins
from hpcddm.package_data import find_yaml
from hpcddm.rundir import atomic, reading
from hpcddm.rundir.layout import RunDir, relative_to_run
from hpcddm.rundir.links import SWEEP_FILE
from hpcddm.rundir.reading import Unreadable
from hpcddm.schema import validate, variants_of
from hpcddm.site import Site
from hpcddm.strict_yaml import parse_value, read_yaml
from hpcddm.unit_states import has_numbers
from hpcddm.weights import SettingsWithWeights

NO_CLUSTER = "Could not establish a configuration source"
"""Error of Slurm's commands where they are installed and no cluster is configured."""
SHARDS = ("shards", "heldout_shards")
"""Keys of the numbers of tars, for training and for held-out images."""


def load_experiment(name: str, overrides: tuple[str, ...] = ()) -> Experiment:
    """Read an experiment by name or path; `overrides` are `key.key=value`, the value in YAML.

    Raises `ConfigError` with the file, the key and the valid values.
    """
    path, values, origins = experiment_values(name, overrides)
    defaults.fill(values, path.stem)
    return validate(Experiment, values, origins)


def experiment_values(name: str, overrides: tuple[str, ...]) -> tuple[Path, dict[str, Any], Origins]:
    """Read the values of an experiment's file and of overrides, with absolute paths and without defaults."""
    path = find_yaml(name, "experiments", "experiment")
    values, origins = read_yaml(path)
    resolve_paths(values, path.resolve().parent)
    origins = origins.before_changes(lambda: filled_file(path))
    for override in overrides:
        origins = _override(values, override, origins)
    resolve_paths(values, Path.cwd())
    return path, values, origins


def filled_file(path: Path) -> dict[str, Any]:
    """Return the values of an experiment's file alone, defaults filled in."""
    values, _ = read_yaml(path)
    resolve_paths(values, path.resolve().parent)
    defaults.fill(values, path.stem)
    return values


def resolve_paths(values: dict[str, Any], start: Path) -> None:
    """Make all relative paths absolute, relative to `start`; $HPCDDM_CACHE at the start is the cache's folder.

    Raises `ConfigError` with the key of a path that cannot be one: of a user who is not there, or with a NUL.
    """
    for holder, key in paths.places(values, Experiment):
        try:
            holder[key] = str(idx_files.fetched((start / pretrained.expanded(holder[key])).resolve()))
        except (RuntimeError, ValueError) as error:
            raise ConfigError(f"{key}: {holder[key]!r} cannot be a path ({error})") from None


def load_site(name: str) -> Site:
    """Read a site by name or path; `auto` is Slurm where there is one, else this machine.

    Raises `UserError` when `auto` finds a Slurm that does not answer.
    """
    if name == "auto":
        name = "slurm" if _has_slurm() else "embedded"
    path = find_yaml(name, "slurm/sites", "site")
    return validate(Site, *read_yaml(path))


def stored_experiment(run: RunDir) -> Experiment:
    """Load the experiment of an existing run.

    Raises `ConfigError` when the folder holds no run.
    """
    try:
        values = _stored(run)
    except Unreadable as error:
        raise ConfigError(str(error)) from None
    if values is None and is_sweep(run):
        raise ConfigError(
            f"{run.root}: a sweep; each of its settings is a run, {run.root}/SETTING; see {run.root}/table.csv"
        )
    if values is None:
        raise ConfigError(f"{run.root}: no run here ({run.experiment.name} is missing)")
    try:
        return validate(Experiment, values, str(run.experiment))
    except ConfigError as error:
        if rooms.own_folder() is None and "unknown name" in str(error):
            raise ConfigError(
                f"{error}; where it is a variant of your own, set {rooms.VARIABLE} to its folder"
            ) from None
        raise


def _stored(run: RunDir) -> dict[str, Any] | None:
    """Read the values of the experiment that a run has stored; raises `Unreadable` where the file is damaged."""
    return reading.read_mapping(run.experiment, most_bytes=reading.MANIFEST_BYTES)


def is_sweep(run: RunDir) -> bool:
    """Tell if the folder is the home of a sweep, whose settings are runs below it."""
    return (run.root / SWEEP_FILE).exists()


def with_content(
    experiment: Experiment, run: RunDir, images: str | None = None, redo: Collection[str] = ()
) -> Experiment:
    """Return the experiment with the hashes of its images, and of every file that has a key `content` beside it.

    Once the samples have numbers, the hash that the run has stored of the same images is taken from there; so are those
    of other files that are gone.

    images: their hash, where the caller has it already; redo: stages that are made again.
    Raises `UserError` or `ConfigError` when images or files are missing and the run has no hash of them.
    """
    data = experiment.data
    stored = _stored(run) or {}
    files = [(holder, key) for holder, key in paths.places(stored, Experiment) if "content" in holder]
    known_hashes = {holder[key]: holder["content"] for holder, key in files}
    is_same = not data.source.adopts_tars and _is_stored(data.source, stored.get("data", {}), run)
    if images is None and is_same and "shard" not in redo and has_numbers(experiment, run):
        images = stored["data"].get("content")
    if not images:
        from hpcddm.data.sources.base import Source

        with with_remedy(experiment):
            images = plugins.create(Source, data.source).content()
    # Of tars that stay where they are, it is asked every time whether they are the same.
    experiment = with_tars(experiment)
    values = experiment.model_dump()
    values["data"]["content"] = images
    of_weights = _fill_in_weights(experiment, values, stored, run)
    for holder, key in paths.places(values, Experiment):
        if "content" in holder and id(holder) not in of_weights and "fitted_by" not in holder:
            path = Path(holder[key])
            # A file that is gone is needed no more where all that is made of it is complete; else submit refuses it.
            known_hash = None if path.exists() else known_hashes.get(relative_to_run(path, run))
            holder["content"] = known_hash or _hash_of(path, key)
    experiment = Experiment.model_validate(values)
    if "fitted_by" not in values["cluster"]["clustering"]:
        return experiment
    from hpcddm.other_run import with_partition

    before = _at(stored, "cluster.clustering.of")
    return with_partition(experiment, run, before, redo, lambda other: out_of_run(stored_experiment(other), other))


def _fill_in_weights(
    experiment: Experiment, values: dict[str, Any], stored: dict[str, Any], run: RunDir
) -> frozenset[int]:
    """Fill in the hashes of the weights that variants read; return the ids of the mappings that hold them.

    Weights that are gone have the hash that the experiment states, or that the run has stored of the same ones; else
    submit refuses them where a unit still needs them. Raises `UserError` for weights that are gone or other ones.
    """
    holders = []
    for place, variant in variants_of(experiment):
        if not isinstance(variant, SettingsWithWeights):
            continue
        holder, own = _at(values, place)["weights"], variant.weights
        before = (_at(stored, place) or {}).get("weights") or {}
        folder = own.folder and relative_to_run(Path(own.folder), run)
        is_same = (before.get("folder"), before.get("hub"), before.get("revision")) == (folder, own.hub, own.revision)
        known_hash = own.content or (before.get("content") if is_same else None)
        try:
            if own.place.exists() or known_hash is None:
                holder["content"] = weights.content(variant)
                weights.require_content(variant, holder["content"])
            else:
                holder["content"] = known_hash
        except UserError as error:
            raise ConfigError(f"{place}: {error}") from None
        holders.append(id(holder))
    return frozenset(holders)


def _at(values: Any, place: str) -> Any:
    """Return the value at a dotted key of nested mappings and lists; None where there is none."""
    for part in place.split("."):
        if isinstance(values, list):
            values = values[int(part)] if int(part) < len(values) else None
        else:
            values = values.get(part) if isinstance(values, dict) else None
    return values


def with_tars(experiment: Experiment) -> Experiment:
    """Return the experiment with the number of tars of a source that adopts them; raises `UserError` without any."""
    data = experiment.data
    if not data.source.adopts_tars:
        return experiment
    from hpcddm.data.sources.base import SPLITS, TarSource

    source = plugins.create(TarSource, data.source)
    with with_remedy(experiment):
        counts = {key: len(source.tars(split)) for key, split in zip(SHARDS, SPLITS, strict=True)}
    return experiment.model_copy(update={"data": data.model_copy(update=counts)})


def _is_stored(source: SourceSettings, data: dict[str, Any], run: RunDir) -> bool:
    """Tell if the source is the one that a run has stored."""
    try:
        stored = validate(SourceSettings, data.get("source"), str(run.experiment))
    except ConfigError:
        return False
    return stored == paths.changed(source, lambda path: relative_to_run(Path(path), run))


@cache
def _hash_of(path: Path, key: str) -> str:
    """Hash the file that a key names, or the table."""
    try:
        if key in UNREADABLE:
            return atomic.sha256(path)
        from hpcddm.data import tables

        return tables.content(path)
    except OSError as error:
        raise ConfigError(UNREADABLE.get(key, _unreadable_table)(path, error)) from None


def _unreadable_table(path: Path, error: Exception) -> str:
    return f"{path}: no table ({getattr(error, 'strerror', None) or error}); a table of the experiment names it"


def _unreadable_list(path: Path, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    return f"{path}: no keys of samples ({reason}); experts.joined names this file in `list`: write one key per line"


def _unreadable_concepts(path: Path, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    return f"{path}: no concepts ({reason}); concepts.vocabulary names this file: write one concept per line"


UNREADABLE = {
    "weights": initial_weights.unreadable,
    "list": _unreadable_list,
    "concepts": _unreadable_concepts,
}
"""Errors about files that cannot be hashed, by the keys that name them; other keys name tables."""


def within_run(experiment: Experiment, run: RunDir) -> Experiment:
    """Return the experiment as a run stores it: all paths relative to the run."""
    return paths.changed(experiment, lambda path: relative_to_run(Path(path), run))


def out_of_run(experiment: Experiment, run: RunDir) -> Experiment:
    """Return the experiment that a run has stored with all paths absolute."""
    return paths.located(experiment, run.root)


def _has_slurm() -> bool:
    """Tell if this machine belongs to a cluster.

    Raises `UserError` when its Slurm does not answer: a run started here by mistake would occupy a login node.
    """
    if not shutil.which("sbatch"):
        return False
    from hpcddm.launch import client

    reason = client.unavailable_reason()
    if reason is None:
        return True
    if NO_CLUSTER in reason:
        print(f"note: Slurm is installed, but for no cluster ({reason}); running on this machine", file=sys.stderr)
        return False
    raise UserError(
        f"--site auto: Slurm is here and does not answer ({reason}); try again when it does,"
        " or say --site embedded to run on this machine, with all its cores"
    )


def _override(values: dict[str, Any], override: str, origins: Origins) -> Origins:
    """Set the value of `key.key=value` and return the origins with this one; raises `ConfigError`."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"'{override}': an override is key.key=value, for instance experts.training.images=30000")
    place = f"'{override}'"
    set_value(values, key, parse_value(key, text, place), place)
    return origins.changed(key, place)


def set_value(values: dict[str, Any], key: str, value: Any, place: str) -> None:
    """Set a dotted key in nested `values`; the mappings on its way are replaced by changed copies.

    Raises `ConfigError` with `place` when the key leads through a value.
    """
    *parents, last = key.split(".")
    for parent in parents:
        inner = values.get(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{place}: {parent} holds a value and no further keys")
        # A copy, because an alias makes one mapping stand in several places of a file.
        values[parent] = dict(inner)
        values = values[parent]
    values[last] = value
