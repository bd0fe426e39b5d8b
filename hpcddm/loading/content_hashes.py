"""Hashes of what an experiment names outside of its run: images, weights, tables, lists. A submission fills them in."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from hpcddm.config import paths, variants, weights
from hpcddm.config.clustering import ClusteringSettings
from hpcddm.config.experiment import Experiment
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.config.package_data import find_data_folder
from hpcddm.config.schema import validate, variants_of
from hpcddm.config.sources import SourceSettings
from hpcddm.config.weights import SettingsWithWeights
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import LABEL, step
from hpcddm.files import atomic
from hpcddm.loading.other_run import fill_in_partition
from hpcddm.pipeline.unit_states import has_numbered_samples
from hpcddm.runs import initial_weights
from hpcddm.runs.files import ENSEMBLE
from hpcddm.runs.initial_weights import counted_digest, require_counted
from hpcddm.runs.run_dir import RunDir, relative_to_run
from hpcddm.runs.stored_experiment import stored_values
from hpcddm.sources.downloads.idx_files import IDX_FILES

EXTRACTORS = "evaluate.extractors."
SHARDS = ("shards", "heldout_shards")
"""Keys of the numbers of tars, for training and for held-out images."""
UNREADABLE = {
    "list": ("keys of samples", "experts.extra names this file in `list`: write one key per line"),
    "ensemble": ("published ensemble", "init_from names this folder: 'hpcddm publish' writes one"),
    "concepts": ("concepts", "concepts.vocabulary names this file: write one concept per line"),
}
"""What is missing in a file that cannot be read, and the advice, by the key that names it; other keys name tables."""


def with_content_hashes(
    experiment: Experiment, run: RunDir, images: str | None = None, redo: Collection[str] = ()
) -> Experiment:
    """Return the experiment with the hashes of its images, and of every file that has a key `content_hash` beside it.

    Once the samples have numbers, the hash that the run has stored of the same images is taken from there; so are those
    of other files that are gone.

    images: their hash, where the caller has it already; redo: stages that are made again.
    Raises `UserError` or `ConfigError` when images or files are missing and the run has no hash of them.
    """
    data = experiment.data
    stored = stored_values(run) or {}
    files = [(holder, key) for holder, key in paths.find_paths(stored, Experiment) if "content_hash" in holder]
    known_hashes = {holder[key]: holder["content_hash"] for holder, key in files}
    is_same = not data.source.uses_existing_tars and _is_stored(data.source, stored.get("data", {}), run)
    if images is None and is_same and "shard" not in redo and has_numbered_samples(experiment, run):
        images = stored["data"].get("content_hash")
    if not images:
        from hpcddm.sources.base import Source

        with add_remedy(experiment):
            images = variants.create(Source, data.source).content_hash()
    # Of tars that stay where they are, it is asked every time whether they are the same.
    experiment = with_tar_counts(experiment)
    values = experiment.model_dump()
    values["data"]["content_hash"] = images
    filled = _fill_in_weights(experiment, values, stored, run) | _in_contract(values)
    for holder, key in paths.find_paths(values, Experiment):
        if "content_hash" in holder and id(holder) not in filled and "fitted_by" not in holder:
            path = Path(holder[key])
            # A file that is gone is needed no more where all that is made of it is complete; else submit refuses it.
            known_hash = None if path.exists() else known_hashes.get(relative_to_run(path, run))
            holder["content_hash"] = known_hash or _hash_of(path, key)
    experiment = Experiment.model_validate(values)
    if "run" not in values["cluster"]["clustering"]:
        return experiment
    return fill_in_partition(experiment, run, paths.value_at(stored, "cluster.clustering.run"), redo)


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
        holder, own = paths.value_at(values, place)["weights"], variant.weights
        before = _stored_weights(stored, place, variant, run)
        known_hash = own.content_hash or before.get("content_hash")
        try:
            if own.place.exists() or known_hash is None:
                holder["content_hash"] = weights.content_hash(variant)
                weights.require_content(variant, holder["content_hash"])
                if place.startswith(EXTRACTORS) and isinstance(variant, ImageEncoderSettings):
                    holder["label"] = variant.evaluator_label()
            else:
                holder |= {"content_hash": known_hash, "label": before.get("label", own.label)}
        except UserError as error:
            raise ConfigError(f"{place}: {error}") from None
        holders.append(id(holder))
    return frozenset(holders)


def _stored_weights(stored: dict[str, Any], place: str, variant: SettingsWithWeights, run: RunDir) -> dict[str, Any]:
    """Return what the run has stored of the weights of a variant; empty where it has other ones, or none.

    The place of an extractor in its list may have changed; its other settings are compared instead.
    """
    own, is_listed = variant.weights, place.startswith(EXTRACTORS)
    wanted = own.folder and relative_to_run(Path(own.folder), run), own.hub, own.revision
    others = variant.model_dump(mode="json", exclude={"weights"})
    found = paths.value_at(stored, EXTRACTORS.rstrip(".")) or [] if is_listed else [paths.value_at(stored, place) or {}]
    for one in found:
        weights_before = one.get("weights") or {}
        is_same = tuple(weights_before.get(key) for key in ("folder", "hub", "revision")) == wanted
        if is_same and (not is_listed or {key: value for key, value in one.items() if key != "weights"} == others):
            return weights_before
    return {}


def _in_contract(values: dict[str, Any]) -> frozenset[int]:
    """Return the ids of the mappings that describe how a contract's partition was made: their files are not read."""
    clustering = values["cluster"]["clustering"]
    made_by = clustering["fitted_by"] if "partition" in clustering else {}
    return frozenset(id(holder) for holder, _ in paths.find_paths(made_by, ClusteringSettings))


def with_tar_counts(experiment: Experiment) -> Experiment:
    """Return the experiment with the number of tars of a source that adopts them; raises `UserError` without any."""
    data = experiment.data
    if not data.source.uses_existing_tars:
        return experiment
    from hpcddm.sources.base import SPLITS, InPlaceSource

    source = variants.create(InPlaceSource, data.source)
    with add_remedy(experiment):
        counts = {key: len(source.tars(split)) for key, split in zip(SHARDS, SPLITS, strict=True)}
    return experiment.model_copy(update={"data": data.model_copy(update=counts)})


def _is_stored(source: SourceSettings, data: dict[str, Any], run: RunDir) -> bool:
    """Tell if the source is the one that a run has stored."""
    with suppress(ConfigError):
        stored = validate(SourceSettings, data.get("source"), str(run.experiment))
        return stored == paths.map_paths(source, lambda path: relative_to_run(Path(path), run))
    return False


@cache
def _hash_of(path: Path, key: str) -> str:
    """Hash the file that a key names, or the table."""
    try:
        if key == "ensemble":
            return atomic.sha256(path / ENSEMBLE)
        if key in ("weights", *UNREADABLE):
            stated, digest = counted_digest(path), atomic.sha256(path)
            require_counted(path, stated, digest)
            return digest
        from hpcddm.sources.tables import tables

        return tables.content_hash(path)
    except OSError as error:
        if key == "weights":
            raise ConfigError(initial_weights.unreadable_error(path, error)) from None
        what, advice = UNREADABLE.get(key, ("table", "a table of the experiment names it"))
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: no {what} ({reason}); {advice}") from None


def missing_paths(experiment: Experiment) -> list[Path]:
    """List the files and folders of the source that are not there."""
    source = experiment.data.source
    named = [Path(holder[key]) for holder, key in paths.find_paths(source.model_dump(), type(source))]
    return [path for path in named if not path.exists()]


def images_note(name: str) -> str:
    """Return the header's note on the images of a shipped experiment; '' for a user's experiment."""
    file = find_data_folder() / "experiments" / f"{name}.yaml"
    header = file.read_text() if file.is_file() else ""
    note = re.search("^#.*? Data: (.*(\\n#   .*)*)", header, re.MULTILINE)
    return " ".join(note[1].replace("\n#", " ").split()) if note else ""


@contextmanager
def add_remedy(experiment: Experiment) -> Iterator[None]:
    """Add to an error about missing images the command that fetches them, or prints how to get them."""
    try:
        yield
    except UserError as error:
        gone = missing_paths(experiment)
        is_fetched = any(path == one.folder for path in gone for one in IDX_FILES)
        if not gone or not (is_fetched or images_note(experiment.name)) or LABEL in str(error):
            raise
        verb = "this fetches the images" if is_fetched else "this says how to get the images"
        reason = "; ".join([*error.args, verb])
        raise type(error)(str(step("hpcddm", "prefetch", experiment.name, reason=reason))) from None
