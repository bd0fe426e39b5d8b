"""Settings of a published ensemble: those of the run, without its private files and what only its evaluation needs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcddm.config import paths
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import variants_of
from hpcddm.config.weights import SettingsWithWeights, list_files, verified_folder
from hpcddm.errors import require
from hpcddm.files import checked_reads
from hpcddm.loading import foreign_settings
from hpcddm.loading.ensemble_document import ENCODERS, NOT_PUBLISHED

OWN_KEYS = ("concepts", "data.class_names", "data.filter", "evaluate.perceptual", "evaluate.reference", "router.refit")
"""Settings of the run alone: what they name does not change a sample; the document has the names of classes."""
NETWORKS = ("data.space.", "data.condition.", "router.model.")
"""Keys of the autoencoder, the text encoder and the encoder of a router by features, which sampling needs."""


def published_values(experiment: Experiment, has_encoders: bool) -> dict[str, Any]:
    """Return the settings of an experiment as an ensemble publishes them, nested as in the YAML file.

    Args:
        experiment: Settings of the run.
        has_encoders: True if the weights of autoencoder and text encoder are copied.
    """
    values = experiment.model_dump(mode="json")
    for key in OWN_KEYS:
        place, _, last = key.rpartition(".")
        (paths.value_at(values, place) if place else values)[last] = None
    experts, clustering = values["experts"], values["cluster"]["clustering"]
    for holder in (values["monolith"], experts, *experts["overrides"], *experts["extra"]):
        if "init_from" in holder:
            holder["init_from"] = None
    values["cluster"]["clustering"] = clustering.get("fitted_by") or clustering
    # The published weights are those that the run evaluated, so no choice is left; nor will another expert arrive.
    values["evaluate"] |= {"snapshot": None, "sigma_rel": None, "min_experts": None}
    if experiment.evaluators.extractor is not None:
        values["evaluate"]["extractors"] = []
    for training in filter(None, (experts["training"], values["router"]["training"])):
        training |= {"snapshots": [], "power_ema": []}
    # Names of files, folders and columns of the images are nobody else's business.
    values["data"]["source"] = {"name": "image_folder", "folder": NOT_PUBLISHED}
    for place, own in network_weights(experiment):
        holder = paths.value_at(values, place)["weights"]
        if has_encoders or own.weights.folder is not None:
            holder |= {"folder": encoder_folder(place), "hub": None, "revision": None}
    for place, holder, key in list(foreign_settings.find_paths(values)):
        if not place.startswith(NETWORKS):
            holder[key] = NOT_PUBLISHED
    return values


def network_weights(experiment: Experiment) -> Iterator[tuple[str, SettingsWithWeights]]:
    """Yield key and settings of the autoencoder and the text encoder, if they are networks of public packages."""
    for place, variant in variants_of(experiment):
        if isinstance(variant, SettingsWithWeights) and f"{place}.".startswith(NETWORKS):
            yield place, variant


def require_plain_weights(experiment: Experiment, root: Path) -> None:
    """Check the public weights of an opened ensemble: no pickles, which could run code, and no links in its folder.

    Args:
        experiment: Settings of the ensemble.
        root: Its folder.

    Raises:
        UserError: Weights are missing, a pickle or behind a link; the message names the file.
    """
    for _, own in network_weights(experiment):
        if own.weights.folder is not None and own.weights.place.exists():
            with checked_reads.open_folder(own.weights.place, root) as opened:
                for name in os.listdir(opened):
                    os.close(checked_reads.open_regular(own.weights.place / name, root))
        names = list_files(own)
        for path in (own.weights.place / name for name in names):
            _refuse_pickle(path)
            # An index of parts may name any file.
            mapped = checked_reads.read_required_json(path).get("weight_map") if path.match("*.index.json") else {}
            is_inside = isinstance(mapped, dict) and all(part in names for part in map(str, mapped.values()))
            require(is_inside, f"{path}: names other files than those beside it; refused")


def encoder_folder(place: str) -> str:
    """Return the folder of a network's public weights, relative to that of the ensemble."""
    return f"{ENCODERS}/{place}"


def encoder_files(experiment: Experiment) -> dict[str, Path]:
    """Return the files of autoencoder and text encoder by their paths in the ensemble's folder.

    Raises:
        UserError: Weights are missing, are not those of the run, or are a pickle, which nobody would open.
    """
    files = {
        f"{encoder_folder(place)}/{name}": verified_folder(own) / name
        for place, own in network_weights(experiment)
        for name in list_files(own)
    }
    for path in files.values():
        _refuse_pickle(path)
    return files


def _refuse_pickle(path: Path) -> None:
    is_pickle = path.suffix in (".bin", ".pt", ".pth")
    require(not is_pickle, f"{path}: is a pickle, which could run code; refused, save it as safetensors")


def described_encoders(experiment: Experiment) -> list[str]:
    """Describe autoencoder, text encoder and feature encoder as text: key, name and hash of their public weights."""
    described = []
    for place, variant in variants_of(experiment):
        if not f"{place}.".startswith((*NETWORKS, "encode.")):
            continue
        if isinstance(variant, SettingsWithWeights):
            origin = f" ({variant.weights.hub})" if variant.weights.hub else ""
            described.append(f"{place}: {variant.name}{origin}, SHA-256 {variant.weights.content_hash}")
        elif variant.pretrained:
            described.append(f"{place}: {variant.name}, SHA-256 {variant.pretrained[0].sha256}")
    return described


def is_partition_general(experiment: Experiment) -> bool:
    """Return True if the partition assigns new images; one of a table would list the samples of the run."""
    clustering = experiment.cluster.clustering
    return (getattr(clustering, "fitted_by", None) or clustering).takes_new_samples
