"""The description of a published ensemble: `ensemble.json`, which lists and explains every file that is loaded.

Whoever receives one trusts nothing in it: its settings are bounded, name variants of the package alone, and their paths
lead to files of the folder.
"""

import math
import unicodedata
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from hpcddm.config import paths
from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.experiment import Experiment
from hpcddm.errors import UserError, require
from hpcddm.errors.printing import printable
from hpcddm.exchange import strict_json
from hpcddm.exchange.signed_folder import ListedFile
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.loading import foreign_settings
from hpcddm.runs.files import ENSEMBLE as FILE
from hpcddm.runs.unit_keys import AUTOENCODER, ROUTER, all_experts, expert_key, expert_of, student_keys, train_keys
from hpcddm.runs.unit_training import resolve_training

CALIBRATION, LATENT_SCALE = "calibration.json", "latent-scale.json"
NOT_PUBLISHED = "not-published"
"""Value of a setting that is a path of the run; nothing that an ensemble does needs it."""
ENCODERS = "encoders"
"""Folder of the weights of an autoencoder and a text encoder, by the keys of their settings."""
REFUSED = "; refused, ask for the folder again"
MAX_NETWORKS = 1000
MAX_IMAGE_VALUES = 1 << 28
"""Most values of an image, of its x, and of its condition."""
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
FolderPath = Annotated[str, StringConstraints(pattern=rf"^({_NAME}/){{0,3}}{_NAME}$")]
"""Path of a file relative to the folder, inside it."""
UnitKey = Annotated[str, StringConstraints(pattern=r"^[a-z]+/[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
LINE_LENGTH = 400
Line = Annotated[str, StringConstraints(max_length=LINE_LENGTH)]
JOINERS = "\u200c\u200d"
"""Characters that join letters or keep them apart, without which words of some languages are misspelt."""


@dataclass(frozen=True)
class PublishedNetwork:
    """One network: its file, its settings, and what it was trained on."""

    file: FolderPath
    precision: Literal["fp32", "bf16"]
    """Type of the stored values; sampling computes in the precision of the training."""
    parameters: Count
    model: dict[str, Any]
    objective: dict[str, Any] | None = None
    """Prediction and path of a denoiser."""
    cluster: Count | None = None
    """Number of an expert's cluster."""
    samples: Count | None = None
    """Number of the training images in that cluster."""
    images: Count | None = None
    """Number of images that the training has seen."""
    train_flops: Annotated[float, Field(ge=0)] | None = None
    site: Line | None = None
    """Site that trained it."""


@dataclass(frozen=True)
class EnsembleDocument:
    """Content of `ensemble.json`."""

    format: Literal["hpcddm ensemble 1"]
    hpcddm: Line
    """Version that wrote it."""
    name: Line
    license: Line
    terms: Line
    strategies: Annotated[list[Line], Field(min_length=1, max_length=100)]
    """Strategies for which all networks are here, in the report's order."""
    class_names: list[Line]
    networks: Annotated[dict[UnitKey, PublishedNetwork], Field(min_length=1, max_length=MAX_NETWORKS)]
    left_out: Annotated[list[UnitKey], Field(max_length=MAX_NETWORKS)]
    """Experts of the run that are not here; the weights of the others are renormalised."""
    experiment: dict[str, Any]
    """Settings nested as in the YAML file: data, space, condition, clustering, objectives, sampler, seed."""
    files: Annotated[dict[FolderPath, ListedFile], Field(max_length=10 * MAX_NETWORKS)]
    """Every file that is loaded."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for parts that do not fit each other."""
        missing = next((key for key, one in self.networks.items() if one.file not in self.files), None)
        require(missing is None, f"networks: {missing}: its file is not listed", ValueError)
        experts = sum(isinstance(expert_of(key), int) for key in (*self.networks, *self.left_out) if _is_expert(key))
        clusters = paths.value_at(self.experiment, "cluster.experts")
        # Single models may be here without the other experts; a router is one of all of them.
        most = experts if ROUTER in self.networks else MAX_NETWORKS
        if not isinstance(clusters, int) or not experts <= clusters <= most:
            raise ValueError(f"experiment: cluster.experts does not fit the {experts} experts that are listed")
        if len({one.file for one in self.networks.values()}) < len(self.networks):
            raise ValueError("networks: two have the same file")
        if paths.value_at(self.experiment, "data.class_names") is not None:
            raise ValueError("experiment: data.class_names may name a file; class_names has the names")
        if len(self.class_names) != (paths.value_at(self.experiment, "data.num_classes") or 0):
            raise ValueError("class_names: as many as data.num_classes are needed")


def _is_expert(key: str) -> bool:
    return key.startswith("train/")


def network_file(key: str) -> str:
    """Return the path of a network's file, such as 'networks/expert-02.safetensors'."""
    stage, _, name = key.partition("/")
    return f"networks/{stage if name == 'all' else name}.safetensors"


def network_settings(experiment: Experiment, key: str) -> dict[str, Any]:
    """Return the settings of a network as a document has them: `model`, and the `objective` of a denoiser."""
    training = resolve_training(experiment, key) if key != ROUTER else None
    model = training.network if training else experiment.router.model
    config = training.config if training else None
    objective = config.objective.model_dump(mode="json") if config else None
    described = model.model_dump(mode="json")
    for holder, place in list(paths.find_paths(described, type(model))):
        # The place of an encoder's weights differs; their hash says which they are.
        holder |= dict.fromkeys((place, *({"hub", "revision"} & holder.keys())))
    return {"model": described, "objective": objective}


def is_harmless(text: str) -> bool:
    """Return True for a text of one line that shows all that it holds, in the order in which it holds it."""
    return all(one.isprintable() or one in JOINERS or unicodedata.category(one) == "Zs" for one in text)


def read_ensemble(folder: Path) -> tuple[EnsembleDocument, Experiment]:
    """Read the description of an ensemble that somebody has published, and its settings with absolute paths.

    Raises:
        UserError: The file is missing or malformed, is larger than any ensemble needs, or names a variant that the
            package does not have. The message names the file.
    """
    place = folder / FILE
    try:
        content = checked_reads.read_bytes(place, checked_reads.MANIFEST_BYTES, root=folder)
        document = strict_json.parse(content, EnsembleDocument, is_harmless)
    except FileNotFoundError:
        raise UserError(f"{place}: is missing; fetch the folder again") from None
    except (Unreadable, ValueError) as error:
        raise _refusal(place, getattr(error, "reason", error)) from None
    experiment = _checked_experiment(place, document)
    keys = {*train_keys(experiment), *student_keys(experiment), *map(expert_key, all_experts(experiment))}
    for key, network in document.networks.items():
        if key not in keys | {ROUTER, AUTOENCODER}:
            raise _refusal(place, f"{key} is not a network of its experiment")
        if network_settings(experiment, key) != {"model": network.model, "objective": network.objective}:
            raise _refusal(place, f"networks: {key}: has other settings than the experiment")
    return document, experiment


def _checked_experiment(place: Path, document: EnsembleDocument) -> Experiment:
    foreign_settings.check_values(str(place), document.experiment)
    values = deepcopy(document.experiment)
    for _, holder, key in list(foreign_settings.find_paths(values)):
        # No text leads out of a folder, so none leads out of this one.
        holder[key] = str(place.parent.absolute() / holder[key])
    try:
        experiment = validate_experiment(values, str(place))
    except UserError as error:
        raise _refusal(place, "; ".join(str(error).splitlines()).removeprefix(f"{place}: ")) from None
    foreign_settings.check_variants(str(place), experiment)
    data = experiment.data
    shapes = {"data.condition": data.condition.shape, "data.image_size": (data.channels, data.image_size**2)}
    for key, shape in (shapes | {"data.space": data.x_shape}).items():
        if math.prod(shape) > MAX_IMAGE_VALUES:
            raise _refusal(place, f"{key}: has more than {MAX_IMAGE_VALUES:,} values of each image")
    return experiment


def _refusal(place: Path, reason: object) -> UserError:
    shown = printable(str(reason), 400)
    return UserError(f"{printable(str(place))}: {shown}{REFUSED}")
