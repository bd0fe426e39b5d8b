"""The other run of `clustering: {name: run}`: what submit fills in of its partition, and refuses before any job."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from hpcddm.config.clustering import ClusteringSettings
from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError, UserError
from hpcddm.loading.ensemble_document import read_ensemble
from hpcddm.pipeline.fingerprints import feature_settings
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import require_current, survey_units
from hpcddm.runs import manifest
from hpcddm.runs.files import PARTITION, PUBLISHED_PARTITION
from hpcddm.runs.initial_weights import settings_below
from hpcddm.runs.published_files import is_published, published_file
from hpcddm.runs.run_dir import RunDir, relative_to_run
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths
from hpcddm.runs.unit_keys import CLUSTER

KEY = "cluster.clustering.run"


def fill_in_partition(experiment: Experiment, run: RunDir, before: Any, redo: Collection[str]) -> Experiment:
    """Return an experiment whose clusters are those of another run with the hash and the clustering of its partition.

    Where the run's own unit holds that partition, the other run need not be there.

    before: `run` as the run has stored it, None where it has not; redo: stages that are made again.
    Raises `ConfigError` where the other run's clusters are not complete, cannot be those of new images, or are those of
    other features.
    """
    values = experiment.model_dump()
    clustering = values["cluster"]["clustering"]
    other = RunDir(Path(clustering["run"]))
    is_same = "cluster" not in redo and before in (None, relative_to_run(other.root, run))
    taken = _stored_partition(run) if is_same else None
    try:
        theirs, content = _other_partition(other)
    except UserError as error:
        if taken is None:
            raise ConfigError(f"{KEY}: {error}") from None
        return _filled(values, taken, run.unit(CLUSTER) / manifest.FILE_NAME)
    fitted_by: ClusteringSettings = getattr(theirs.cluster.clustering, "fitted_by", None) or theirs.cluster.clustering
    _check(experiment, theirs, fitted_by, other)
    return _filled(values, {"content_hash": content, "fitted_by": fitted_by.model_dump()}, other.experiment)


def _other_partition(other: RunDir) -> tuple[Experiment, str | None]:
    """Return the settings and the SHA-256 of the partition of a run, or of a published ensemble."""
    if is_published(other.root):
        return read_ensemble(other.root)[1], published_file(other.root, PUBLISHED_PARTITION)[1]
    theirs = with_absolute_paths(stored_experiment(other), other)
    require_current(survey_units(plan_units(theirs), other), other, CLUSTER)
    return theirs, manifest.recorded_digest(other.unit(CLUSTER), PARTITION)


def _check(experiment: Experiment, theirs: Experiment, fitted_by: ClusteringSettings, other: RunDir) -> None:
    """Raise `ConfigError` where the other run's clusters cannot be those of an experiment's images."""
    if not fitted_by.takes_new_samples:
        raise ConfigError(
            f"{KEY}: {other.root} is clustered by '{fitted_by.name}', which goes by a sample's number or key and says"
            " nothing of new images; name a run that is clustered by features or classes"
        )
    # The settings that, besides the partition, determine the clusters of images.
    here, there = (
        manifest.flatten(
            {"cluster": {"experts": each.cluster.experts}}
            | (feature_settings(each) if fitted_by.needs_features else {})
        )
        for each in (experiment, theirs)
    )
    changes = [key for key in sorted({*here, *there}) if here.get(key) != there.get(key)]
    if changes:
        listed = "; ".join(f"{key}: {here.get(key)!r} here, {there.get(key)!r} there" for key in changes)
        raise ConfigError(
            f"{KEY}: {other.root} has other settings ({listed}); take those, or fit clusters to these images"
        )


def _stored_partition(run: RunDir) -> dict[str, Any] | None:
    """Return the run's own partition as its manifest describes it; None without such a partition."""
    made = manifest.read_if_usable(run.unit(CLUSTER))
    try:
        clustering = settings_below(made.settings, "cluster.clustering.") if made else {}
    except (AttributeError, TypeError):
        # A manifest that another program wrote may give a key both a value and keys below it.
        return None
    return {key: clustering.get(key) for key in ("content_hash", "fitted_by")} if "fitted_by" in clustering else None


def _filled(values: dict[str, Any], filled_in: dict[str, Any], origin: Path) -> Experiment:
    values["cluster"]["clustering"] |= filled_in
    return validate_experiment(values, str(origin))
