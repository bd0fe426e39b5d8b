"""Initial weights: reads the description of a weights file and checks it against a unit's network, without torch."""

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcddm.config import variants
from hpcddm.config.conditions import ConditionForm
from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.experiment import Experiment
from hpcddm.config.models import NetworkSettings
from hpcddm.config.objectives import ObjectiveSettings, ScheduleSettings
from hpcddm.config.schema import VariantSettings
from hpcddm.config.spaces import SPACE_DIGEST, SpaceSettings
from hpcddm.config.training import Expert, ExpertVariation, InitialWeights
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.errors.printing import printable
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Count, OpenRecord, Unreadable
from hpcddm.files.tensor_file import TensorFile
from hpcddm.runs import manifest
from hpcddm.runs.files import CONTRACT, WEIGHTS
from hpcddm.runs.published_files import network_file
from hpcddm.runs.result_types import Flops
from hpcddm.runs.unit_keys import MONOLITH, ROUTER, STUDENT, expert_of, stage_of, trained_unit

METADATA = "hpcddm"
"""Key in a safetensors header under which hpcddm stores a description of the file in JSON."""
LATENTS = "latents"
"""Entry in the description of a network's data: digest of the latents from an autoencoder trained in the run."""
CONDITION_KEYS = {"condition": "data.condition", "encoder": "data.condition.encoder.name"}
"""Dotted settings keys of a network's condition, by their names in the descriptions of files."""
CONVERT = "make a start of it with 'hpcddm convert'"
REFIT = "only the number of experts may be another: router.model must be that of the other router"


@dataclass(frozen=True)
class InitRequest:
    """Weights file from which a unit starts, and the network that it must hold.

    `place`, `model_place` and `objective_place` are the dotted settings keys of file, model and objective.
    """

    init_from: InitialWeights
    place: str
    model: NetworkSettings
    model_place: str
    advice: str
    condition: dict[str, str | None]
    """Condition that the network receives, as `network_condition` returns it."""
    space: SpaceSettings
    objective: ObjectiveSettings | None = None
    objective_place: str = ""
    unit: str = ""
    """Unit of the network, as `stage/unit`."""
    parameters: int | None = None
    """Number of parameters that the file must hold; None if its last layer may have another number of outputs."""

    def locate(self, root: Path) -> tuple[Path, str | None]:
        """Return the file and its SHA-256 when the run was submitted; None if that is not known.

        Args:
            root: Folder to which relative paths of the settings are relative.

        Raises:
            UserError: The file is of an ensemble that is damaged, has changed or has no such network.
        """
        start = self.init_from
        if start.ensemble is not None:
            return network_file(root / start.ensemble, self.unit, start.content_hash, f"{self.place}.ensemble")
        return (root / str(start.weights)).resolve(), start.content_hash


@dataclass(frozen=True)
class TrainingData(OpenRecord):
    """Types of a file's description of its network's training data."""

    channels: Count = 1
    image_size: Count = 1
    num_classes: Count | None = None
    space: dict[str, Any] | None = None
    condition: str | None = None
    encoder: str | None = None
    latents: str | None = None


@dataclass(frozen=True)
class WeightsDescription(OpenRecord):
    """Types of a file's description of itself."""

    model: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    data: TrainingData = field(default_factory=TrainingData)
    source: str = ""
    images: Count | None = None
    train_flops: Flops | None = None


def init_request(experiment: Experiment, key: str) -> InitRequest | None:
    """Return the request for a unit's initial weights; None if they are random or the unit trains nothing.

    That of a router is for the body that a refit keeps.
    """
    data, router = experiment.data, experiment.router
    if key == ROUTER and router.refit is not None:
        seen = network_condition(router.model, data)
        return InitRequest(
            router.refit, "router.refit", router.model, "router.model", REFIT, seen, data.space, unit=key
        )
    if stage_of(key) not in (stage_of(MONOLITH), stage_of(STUDENT)):
        return None
    expert = None if key == STUDENT else expert_of(key)
    config = experiment.expert_config(expert)
    if config.init_from is None:
        return None
    start, model, objective = (
        expert_setting_key(experiment, expert, part) for part in ("init_from", "model", "objective")
    )
    seen, size = network_condition(config.model, data), config.model.parameters(data)
    return InitRequest(
        config.init_from, start, config.model, model, CONVERT, seen, data.space, config.objective, objective, key, size
    )


def expert_setting_key(experiment: Experiment, expert: Expert | None, part: str) -> str:
    """Return the dotted settings key of an expert's `model`, `objective` or `init_from`; expert None: the monolith."""
    experts = experiment.experts
    own = experts.variation(expert)
    lists: dict[str, Sequence[ExpertVariation]] = {"overrides": experts.overrides, "extra": experts.extra}
    for key, entries in lists.items():
        for number, entry in enumerate(entries):
            if entry is own and getattr(entry, part) is not None:
                return f"experts.{key}.{number}.{part}"
    return f"experts.{part}"


def network_condition(model: NetworkSettings, data: NetworkData) -> dict[str, str | None]:
    """Return the form of a network's condition, and the name of its text encoder (None without text)."""
    form = model.condition_form(data)
    return {"condition": form.value, "encoder": data.condition.encoder_name if form is ConditionForm.TEXT else None}


def open_weights(path: Path) -> TensorFile:
    """Open a safetensors file that the user names, and check its header.

    Raises:
        UserError: If the file is missing, a folder, incomplete or of another format.
    """
    stated = counted_digest(path)
    try:
        file = TensorFile(path, follows_links=True)
    except (OSError, Unreadable) as error:
        raise UserError(unreadable_error(path, error)) from None
    if stated is not None:
        require_counted(path, stated, file.read({}))
    return file


def read_description(file: TensorFile) -> dict[str, Any]:
    """Read the description in a file's header; empty if hpcddm did not write the file.

    Raises:
        UserError: If the description is damaged.
    """
    try:
        return checked_reads.parse_mapping(file.metadata.get(METADATA, "{}").encode(), WeightsDescription)
    except ValueError as error:
        raise UserError(unreadable_error(file.path, error)) from None


def unreadable_error(path: Path, error: Exception) -> str:
    """Return the error message about a file that cannot be read as initial weights."""
    if path.is_dir():
        return f"{path}: no weights to start from (a folder); name the file in it: {path / WEIGHTS}"
    reason = getattr(error, "reason", None) or printable(error) or type(error).__name__
    reason = reason if path.exists() else "it is not there"
    return f"{path}: no weights to start from ({reason}); put it back, or see 'hpcddm convert'"


def describe_network(path: Path, metadata: dict[str, Any], digest: str | None) -> dict[str, Any]:
    """Describe the network in a weights file by its header, or else by the manifest in its folder.

    Args:
        path: The file.
        metadata: Description in the file's header; may be empty.
        digest: SHA-256 of the file; None to compute it if needed.

    Returns:
        model, objective (of a denoiser), data, source, images and train_flops. Images and FLOPs include those of the
        initial weights and are None if unknown. Empty if neither header nor manifest describes the file.

    Raises:
        UserError: If the file differs from the manifest.
    """
    unit_manifest = manifest.read(path.parent)
    if metadata or unit_manifest is None:
        return metadata
    hashes = {output.path: output.sha256 for output in unit_manifest.outputs}
    part = "router" if unit_manifest.stage == "router" else "experts"
    if path.name not in hashes or f"{part}.model.name" not in unit_manifest.settings:
        return {}
    if hashes[path.name] != (digest or atomic.sha256(path)):
        raise UserError(f"{path}: its bytes are not those of its manifest; fetch it again")
    parts = {manifest.parse_input_name(name)[1]: digest for name, digest in unit_manifest.inputs.items()}
    source = {"source": f"{unit_manifest.stage}/{unit_manifest.unit}"}
    try:
        data = _data_of(unit_manifest.settings) | {LATENTS: parts.get(SPACE_DIGEST)}
        nested = {key: settings_below(unit_manifest.settings, f"{part}.{key}.") for key in ("model", "objective")}
        return nested | {"data": data} | source | _sum_costs(unit_manifest.results)
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        fault = f"{path.parent / manifest.FILE_NAME}: does not say what network {path.name} is of ({printable(error)})"
        raise UserError(f"{fault}; fetch it again") from None


def check_description(
    request: InitRequest, path: Path, description: dict[str, Any], latents: str | None = None
) -> None:
    """Check that a file's description fits the request; print a note if the file has no description.

    It compares settings that shapes of tensors do not show: heads, time embedding, prediction type.

    Args:
        request: The requested network.
        path: The file.
        description: Description of the file, as `describe_network` returns it.
        latents: Digest of the latents that the training reads; None if not yet known.

    Raises:
        UserError: If the file holds another network; the message names key, values and next step.
    """
    if "model" not in description:
        print(f"note: {path} says nothing of itself: taken for the right network by names and shapes", file=sys.stderr)
        return
    try:
        model = variants.settings_class("models", description["model"]["name"])(**description["model"])
        pairs = [(f"{request.model_place}.{key}", *both) for key, both in _paired(model, request.model).items()]
        if request.objective is not None:
            objective = description.get("objective", {}).get("name")
            pairs.append((f"{request.objective_place}.name", objective, request.objective.name))
        data = description.get("data", {})
        pairs += [(place, data.get(key), request.condition[key]) for key, place in CONDITION_KEYS.items()]
        pairs.append(("data.space", data.get("space"), request.space.defining_settings))
        path_there = description.get("objective", {}).get("schedule")
        schedule = None if path_there is None else ScheduleSettings.model_validate(path_there)
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise UserError(f"{path}: written by another version of hpcddm ({error}); {request.advice}") from None
    for place, there, here in pairs:
        if there != here and not (place.startswith("data.") and there is None):
            raise UserError(f"{path}: {place} is {here} and the file's is {there}; {request.advice}")
    if request.space.is_trained_in_run and latents is not None and data.get(LATENTS) not in (None, latents):
        raise UserError(
            f"{path}: was trained on the latents of another run's autoencoder; take weights of this run; or, with the"
            " same images and augmentations, copy autoencoder and latents of that run, and submit again"
        )
    if schedule is not None and request.objective is not None and schedule != request.objective.schedule:
        both = f"{schedule.description}, {request.objective_place} has {request.objective.schedule.description}"
        advice = "at equal t log-SNR is another one, and hpcddm convert says by how much"
        print(f"note: {path} was trained on the path {both}; {advice}", file=sys.stderr)


def check_file(request: InitRequest, path: Path, digest: str | None) -> None:
    """Check a weights file against the request by its header alone.

    Raises:
        UserError: If the file is missing, incomplete or holds another network.
    """
    with open_weights(path) as file:
        description, specs = read_description(file), file.forms.values()
    check_description(request, path, describe_network(path, description, digest))
    held = sum(math.prod(spec.shape) for spec in specs)
    if request.parameters not in (None, held):
        raise UserError(
            f"{path}: holds {held:,} parameters and {request.model_place} has {request.parameters:,}; {request.advice}"
        )


def is_for_own_latents(path: Path) -> bool:
    """Return True if a file's network was trained on latents from an autoencoder trained in the same run."""
    with open_weights(path) as file:
        description = read_description(file)
    return describe_network(path, description, None).get("data", {}).get(LATENTS) is not None


def start_entry(path: Path, description: dict[str, Any], digest: str) -> dict[str, Any]:
    """Return the manifest's entry about a unit's initial weights; None for unknown images and FLOPs."""
    spent = {key: description.get(key) for key in ("images", "train_flops")}
    return {"sha256": digest, "source": description.get("source", path.name)} | spent


def _paired(there: VariantSettings, here: VariantSettings) -> dict[str, tuple[Any, Any]]:
    """Pair the values (file, experiment) by key, the name first; `size` is omitted because other keys imply it."""
    ours, theirs = manifest.flatten(here.model_dump()), manifest.flatten(there.model_dump())
    keys = ["name", *(key for key in ours if key not in ("name", "size"))]
    return {key: (theirs.get(key), ours[key]) for key in keys}


def _data_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Describe a network's data by a manifest's settings: shape and space of x, number of classes, condition."""
    # Old manifests name no space. Manifests of latents name the shape of x; others name settings that determine it.
    space = settings_below(settings, "data.space.") or {"name": "pixels"}
    channels, height, _ = space.pop("shape", None) or SpaceSettings.model_validate(space).shape(
        settings["data.channels"], settings["data.image_size"]
    )
    # The settings of a network without a condition do not name one.
    name = settings.get("data.condition.name")
    form = ConditionForm.NONE if name is None else variants.settings_class("diffusion/conditions", name).form
    described = {"channels": channels, "image_size": height, "space": space}
    described |= {"condition": form.value, "encoder": settings.get("data.condition.encoder.name")}
    return described | {"num_classes": settings.get("data.num_classes")}


def _sum_costs(results: dict[str, Any]) -> dict[str, int | None]:
    """Sum images and FLOPs of a unit and of its initial weights; None if one of the two is unknown."""
    seed = results.get("start") or {"images": 0, "train_flops": 0}
    parts = {key: (results.get(key), seed.get(key)) for key in ("images", "train_flops")}
    return {key: None if spent is None or before is None else spent + before for key, (spent, before) in parts.items()}


def settings_below(flat: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the settings below a prefix of flat dotted keys, as nested mappings."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        if key.startswith(prefix):
            *parents, last = key.removeprefix(prefix).split(".")
            place = nested
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
    return nested


def counted_digest(path: Path) -> str | None:
    """Return the SHA-256 that a file must have; None if it is in no unit's folder of a run with a contract.

    None, too, for a file of a training of this site that is not complete.

    Args:
        path: The file; it may be a link into such a folder.

    Raises:
        UserError: If the unit is of another site that has not signed it, or does not list the file.
    """
    digests = [
        manifest.recorded_digest(folder, str(way.relative_to(folder)))
        for way in (Path(os.path.abspath(path)), Path(os.path.realpath(path)))
        for folder in list(way.parents)[:2]
        if (unit := trained_unit(folder)) is not None and (unit[0] / CONTRACT).is_dir()
    ]
    return next(filter(None, digests), None)


def require_counted(path: Path, stated: str | None, digest: str) -> None:
    """Raise `UserError` for a file that has not the digest that `counted_digest` has returned."""
    require(stated in (None, digest), f"{path}: its bytes are not those of its manifest; fetch it again")
