"""Initial weights: the description of a weights file, and its check against a unit's network; without torch."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from hpcddm.config import variants
from hpcddm.config.conditions import Form
from hpcddm.config.experiment import Experiment
from hpcddm.config.models import NetworkSettings
from hpcddm.config.objectives import ObjectiveSettings, ScheduleSettings
from hpcddm.config.schema import VariantSettings
from hpcddm.config.shapes import NetworkData
from hpcddm.config.spaces import WHAT_X_IS, SpaceSettings
from hpcddm.config.training import Expert, ExpertVariation, InitialWeights
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.printing import printable
from hpcddm.files import atomic, reading
from hpcddm.files.reading import Unreadable
from hpcddm.files.tensor_file import TensorFile
from hpcddm.runs import manifest
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.results import require_flops

METADATA = "hpcddm"
"""Key in a safetensors header under which hpcddm's own files describe, in JSON, what they hold."""
LATENTS = "latents"
"""Entry in the description of a network's data: digest of the latents that a run's own autoencoder made."""
PLACES = {"condition": "data.condition", "encoder": "data.condition.encoder.name"}
"""Dotted keys of a network's condition, by their names in the descriptions of files."""
CONVERT = "make a start of it with 'hpcddm convert'"
REFIT = "only the number of experts may be another: router.model must be that of the other router"


@dataclass(frozen=True)
class InitRequest:
    """The file that a unit starts from, and the network that it must hold; `place` and the like are dotted keys."""

    init_from: InitialWeights
    place: str
    model: NetworkSettings
    model_place: str
    advice: str
    condition: dict[str, str | None]
    """Condition that the network sees, as `seen_condition` returns it."""
    space: SpaceSettings
    objective: ObjectiveSettings | None = None
    objective_place: str = ""
    parameters: int | None = None
    """Number of parameters that the file must hold; None where its last layer may have other outputs."""


@dataclass(frozen=True)
class SeenData:
    """Types of what a file says of the data that its network has seen."""

    __pydantic_config__: ClassVar = reading.OPEN

    channels: int = 1
    image_size: int = 1
    num_classes: int | None = None
    space: dict[str, Any] | None = None
    condition: str | None = None
    encoder: str | None = None
    latents: str | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that cannot be."""
        reading.require_counts(self.channels, self.image_size, self.num_classes or 0)


@dataclass(frozen=True)
class Description:
    """Types of what a file says of itself."""

    __pydantic_config__: ClassVar = reading.OPEN

    model: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    data: SeenData = field(default_factory=SeenData)
    source: str = ""
    images: int | None = None
    train_flops: int | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that cannot be."""
        reading.require_counts(self.images or 0)
        require_flops(self.train_flops or 0)


@dataclass(frozen=True)
class Header:
    """Shapes of the tensors by name, and the file's own description; no tensor is read."""

    shapes: dict[str, tuple[int, ...]]
    description: dict[str, Any]


def router_request(experiment: Experiment) -> InitRequest | None:
    """Return the request for the other router whose body a refit keeps; None where the router is not refitted."""
    router = experiment.router
    if router.refit is None:
        return None
    seen, space = seen_condition(router.model, experiment.data), experiment.data.space
    return InitRequest(router.refit, "router.refit", router.model, "router.model", REFIT, seen, space)


def denoiser_request(experiment: Experiment, expert: Expert | None) -> InitRequest | None:
    """Return the request for a denoiser's initial weights, None for random ones; expert None: monolith and student."""
    config = experiment.expert_config(expert)
    if config.init_from is None:
        return None
    start, model, objective = (place_of(experiment, expert, part) for part in ("init_from", "model", "objective"))
    seen, space = seen_condition(config.model, experiment.data), experiment.data.space
    size = config.model.parameters(experiment.data)
    return InitRequest(
        config.init_from, start, config.model, model, CONVERT, seen, space, config.objective, objective, size
    )


def place_of(experiment: Experiment, expert: Expert | None, part: str) -> str:
    """Return the dotted key of an expert's `model`, `objective` or `init_from`; expert None: the monolith's."""
    experts = experiment.experts
    own = experts.variation(expert)
    lists: dict[str, Sequence[ExpertVariation]] = {"overrides": experts.overrides, "joined": experts.joined}
    for key, entries in lists.items():
        for number, entry in enumerate(entries):
            if entry is own and getattr(entry, part) is not None:
                return f"experts.{key}.{number}.{part}"
    return f"experts.{part}"


def seen_condition(model: NetworkSettings, data: NetworkData) -> dict[str, str | None]:
    """Return the form of the condition that a network sees, and the encoder of its text, None without text."""
    form = model.form(data)
    return {"condition": form.value, "encoder": data.condition.encoder_name if form is Form.TEXT else None}


def header(path: Path) -> Header:
    """Read the header of a safetensors file.

    Raises `UserError` naming the file when it is missing, a folder, torn or of another format.
    """
    with opened(path) as file:
        return Header({name: form.shape for name, form in file.forms.items()}, description_of(file))


def opened(path: Path) -> TensorFile:
    """Open a safetensors file that the user names; errors as those of `header`."""
    try:
        return TensorFile(path, follows_links=True)
    except (OSError, Unreadable) as error:
        raise UserError(unreadable(path, error)) from None


def description_of(file: TensorFile) -> dict[str, Any]:
    """Read what hpcddm's own files say of themselves; empty for others. Raises `UserError` where it is not JSON."""
    try:
        return reading.parse_mapping(file.metadata.get(METADATA, "{}").encode(), Description)
    except ValueError as error:
        raise UserError(unreadable(file.path, error)) from None


def unreadable(path: Path, error: Exception) -> str:
    """Return the error message about a file that cannot be read as initial weights."""
    if path.is_dir():
        return f"{path}: no weights to start from (a folder); name the file in it: {path / WEIGHTS}"
    reason = getattr(error, "reason", None) or printable(error) or type(error).__name__
    reason = reason if path.exists() else "it is not there"
    return f"{path}: no weights to start from ({reason}); put it back, or see 'hpcddm convert'"


def described(path: Path, metadata: dict[str, Any], digest: str | None) -> dict[str, Any]:
    """Describe the network in a file, by its header's `metadata`, else by the manifest of the unit beside it.

    Keys: model, objective (of a denoiser), data, source, images seen and training FLOPs, both including what the unit
    itself started from, None for unknown. Empty where neither describes it. digest: the file's SHA-256, where it is
    known. Raises `UserError` when the file's hash is not that in the manifest.
    """
    unit_manifest = manifest.read(path.parent)
    if metadata or unit_manifest is None:
        return metadata
    hashes = {output.path: output.sha256 for output in unit_manifest.outputs}
    part = "router" if unit_manifest.stage == "route" else "experts"
    if path.name not in hashes or f"{part}.model.name" not in unit_manifest.settings:
        return {}
    if hashes[path.name] != (digest or atomic.sha256(path)):
        raise UserError(f"{path}: its bytes are not those of its manifest; fetch it again")
    parts = {manifest.referenced(name)[1]: digest for name, digest in unit_manifest.inputs.items()}
    source = {"source": f"{unit_manifest.stage}/{unit_manifest.unit}"}
    try:
        data = _data_of(unit_manifest.settings) | {LATENTS: parts.get(WHAT_X_IS)}
        nested = {key: settings_below(unit_manifest.settings, f"{part}.{key}.") for key in ("model", "objective")}
        return nested | {"data": data} | source | _spent(unit_manifest.results)
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        fault = f"{path.parent / manifest.FILE_NAME}: does not say what network {path.name} is of ({printable(error)})"
        raise UserError(f"{fault}; fetch it again") from None


def check(request: InitRequest, path: Path, description: dict[str, Any], latents: str | None = None) -> None:
    """Refuse weights of another network than the requested one; print a note where the file has no description.

    It compares settings that tensors do not show: heads, time embedding, prediction type. description: result of
    `described`; latents: digest of those that the training reads, None where it is not known yet. Raises `UserError`
    naming the key, both values and a remedy.
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
        pairs += [(place, data.get(key), request.condition[key]) for key, place in PLACES.items()]
        pairs.append(("data.space", data.get("space"), request.space.coordinates))
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
            " same images and augmentations, copy autoencoder, latents and latent_scale of that run, and submit again"
        )
    if schedule is not None and request.objective is not None and schedule != request.objective.schedule:
        both = f"{schedule.described}, {request.objective_place} has {request.objective.schedule.described}"
        advice = "at equal t log-SNR is another one, and hpcddm convert says by how much"
        print(f"note: {path} was trained on the path {both}; {advice}", file=sys.stderr)


def check_file(request: InitRequest, path: Path) -> None:
    """Refuse a file that is missing, torn or of another network, by its header alone.

    Raises `UserError` naming the file, the key and a remedy.
    """
    file_header = header(path)
    check(request, path, described(path, file_header.description, request.init_from.content))
    held = sum(math.prod(shape) for shape in file_header.shapes.values())
    if request.parameters not in (None, held):
        raise UserError(
            f"{path}: holds {held:,} parameters and {request.model_place} has {request.parameters:,}; {request.advice}"
        )


def is_for_own_latents(path: Path) -> bool:
    """Tell if a file's network was trained on latents that its run's own autoencoder made."""
    return described(path, header(path).description, None).get("data", {}).get(LATENTS) is not None


def record(path: Path, description: dict[str, Any], digest: str) -> dict[str, Any]:
    """Return the manifest's entry about the file that a unit started from; None for unknown images and FLOPs."""
    spent = {key: description.get(key) for key in ("images", "train_flops")}
    return {"sha256": digest, "source": description.get("source", path.name)} | spent


def _paired(there: VariantSettings, here: VariantSettings) -> dict[str, tuple[Any, Any]]:
    """Pair the values (file's, experiment's) by key, the name first; `size` is left out, as other keys imply it."""
    ours, theirs = manifest.flatten(here.model_dump()), manifest.flatten(there.model_dump())
    keys = ["name", *(key for key in ours if key not in ("name", "size"))]
    return {key: (theirs.get(key), ours[key]) for key in keys}


def _data_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Describe the data of a network by a manifest's settings: x, its space, number of classes, its condition."""
    # Manifests from before there was a choice name no space; those of latents have the shape, others the settings.
    space = settings_below(settings, "data.space.") or {"name": "pixels"}
    given = space.pop("shape", None)
    channels, height, _ = given or SpaceSettings.model_validate(space).shape(
        settings["data.channels"], settings["data.image_size"]
    )
    # A network that sees no condition is trained by settings that name none.
    name = settings.get("data.condition.name")
    form = Form.NONE if name is None else variants.settings_class("diffusion/conditions", name).form
    described = {"channels": channels, "image_size": height, "space": space}
    described |= {"condition": form.value, "encoder": settings.get("data.condition.encoder.name")}
    return described | {"num_classes": settings.get("data.num_classes")}


def _spent(results: dict[str, Any]) -> dict[str, int | None]:
    """Sum images and FLOPs of a unit and of what it started from; None where one of the two is unknown."""
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
