"""Reads weights in any of the public file formats; nothing that could execute code is ever unpickled."""

import argparse
import hashlib
import pickle
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import torch

from hpcddm.config import variants
from hpcddm.config.models import LayoutSettings
from hpcddm.errors import UserError
from hpcddm.files.checked_reads import Unreadable, open_regular
from hpcddm.files.foreign_json import ForeignJson
from hpcddm.files.tensor_file import TensorFile
from hpcddm.files.tensors import read_whole
from hpcddm.models.checkpoints.base import CheckpointContent, CheckpointLayout
from hpcddm.models.checkpoints.memory_bounds import require_bounded, require_uncompressed
from hpcddm.models.checkpoints.weights_selection import select_weights, strip_prefixes
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.initial_weights import counted_digest, describe_network, read_description, require_counted

DIFFUSERS_WEIGHTS = "diffusion_pytorch_model.safetensors"
PICKLES = (".pt", ".pth", ".bin")
PART = re.compile(r"-[0-9]+-of-(?!0*1\.)[0-9]+\.(safetensors|bin)$")
"""End of the name of one of several parts of some weights."""
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def read_checkpoint(path: Path) -> CheckpointContent:
    """Read a .safetensors file, a .pt or .pth file without pickled code, a diffusers folder or a unit of a run.

    Raises `UserError` naming the file when it is missing, torn, foreign, not finite or could execute code.
    """
    file = _weights_of(path)
    stated = counted_digest(file)
    metadata: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    notes: list[str] = []
    if file.suffix == ".safetensors":
        tensors, metadata, digest = _safetensors(file)
    elif file.suffix in PICKLES:
        values, digest = _unpickled(file)
        tensors, taken = select_weights(values, file)
        require_bounded(tensors, file)
        notes.append(taken)
        arguments = _arguments(values)
    else:
        raise UserError(f"{file}: weights are read from .safetensors, {', '.join(PICKLES)} or a folder that holds them")
    require_counted(file, stated, digest)
    if not tensors:
        raise UserError(f"{file}: holds no tensors")
    beside = file.with_name("config.json")
    config = ForeignJson.read(beside) if beside.is_file() else {}
    stored = CheckpointContent(file, digest, tensors, config, describe_network(file, metadata, digest), arguments)
    tensors, more = strip_prefixes(tensors, lambda inner: bool(_recognising(replace(stored, tensors=inner))))
    return replace(stored, tensors=_in_float32(tensors, file), notes=(*notes, *more))


def layout_names() -> tuple[str, ...]:
    """List the names of all layouts."""
    return variants.list_variants(LayoutSettings.package)


def layout(name: str) -> CheckpointLayout[LayoutSettings]:
    """Return the layout of this name.

    Raises `ConfigError` with the names of all layouts.
    """
    return variants.create(CheckpointLayout, LayoutSettings.model_validate({"name": name}))


def recognise_layout(stored: CheckpointContent) -> str:
    """Return the name of the layout that recognises a file's tensors.

    Raises `UserError` with the names of all layouts.
    """
    names = _recognising(stored)
    if names:
        return names[0]
    some, notes = ", ".join(sorted(stored.tensors)[:3]), "".join(f"; {note}" for note in stored.notes)
    raise UserError(f"{stored.path}: none of the layouts {', '.join(layout_names())} has tensors such as {some}{notes}")


def _recognising(stored: CheckpointContent) -> list[str]:
    return [name for name in layout_names() if layout(name).recognises(stored)]


def _weights_of(path: Path) -> Path:
    candidates = [path, path / WEIGHTS, path / DIFFUSERS_WEIGHTS, path / "transformer" / DIFFUSERS_WEIGHTS]
    for candidate in candidates:
        if candidate.is_file() and not PART.search(candidate.name):
            return candidate
    places = [path.parent] if path.is_file() else [path, path / "transformer"]
    parts = sorted(file for place in places for file in place.glob("*") if PART.search(file.name))
    if parts:
        advice = "load them where they are from, and save with save_pretrained(FOLDER, max_shard_size='1TB')"
        raise UserError(f"{path}: has {len(parts)} parts of weights, {parts[0].name} the first; to join them, {advice}")
    if path.is_dir():
        raise UserError(f"{path}: has neither {WEIGHTS} nor {DIFFUSERS_WEIGHTS}")
    raise UserError(f"{path}: no such file or folder")


def _safetensors(file: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any], str]:
    """Return the tensors, the file's own description, and its SHA-256, all of one open file."""
    try:
        with TensorFile(file, follows_links=True) as opened:
            digest = opened.read({})
            tensors = {name: read_whole(opened, name) for name in opened.forms}
            opened.require_unchanged()
            return tensors, read_description(opened), digest
    except (OSError, Unreadable) as error:
        reason = getattr(error, "reason", str(error))
        raise UserError(f"{file}: torn, or no safetensors file ({reason}); fetch it again") from None


def _unpickled(file: Path) -> tuple[Any, str]:
    """Return what a file of torch holds, and its SHA-256, of one open file."""
    with open(open_regular(file, follows_links=True), "rb") as opened:
        require_uncompressed(file, opened)
        opened.seek(0)
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        opened.seek(0)
        return _loaded(file, opened), digest


def _loaded(file: Path, opened: BinaryIO) -> Any:
    try:
        # A Namespace only holds values, and these must be harmless, too.
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            # A warning about how a plain pickle was made would not help the reader.
            warnings.simplefilter("ignore")
            return torch.load(opened, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        advice = "load it where you trust it and save its tensors alone, best with safetensors.torch.save_file"
        raise UserError(f"{file}: holds more than tensors, or is none; unpickling could run code; {advice}") from None
    except Exception as error:
        # What torch raises over a torn file is not limited to any kind.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{file}: torn, or no checkpoint of torch ({reason})") from None


def _arguments(values: Any) -> dict[str, Any]:
    """Return the arguments of the training that wrote a file, empty where it names none."""
    entries = values if isinstance(values, Mapping) else {}
    # LightningDiT keeps its settings by section; those of path and prediction are those of SiT's arguments.
    config = entries.get("config")
    arguments = entries.get("args", config.get("transport") if isinstance(config, Mapping) else None)
    arguments = vars(arguments) if isinstance(arguments, argparse.Namespace) else arguments
    return dict(arguments) if isinstance(arguments, Mapping) else {}


def _in_float32(tensors: dict[str, torch.Tensor], file: Path) -> dict[str, torch.Tensor]:
    """Convert weights to float32; raises `UserError` for one quantised, sparse, without values or not finite."""
    for name, values in tensors.items():
        if values.dtype not in DTYPES or values.layout != torch.strided or values.is_meta:
            kind, *valid = (str(part).removeprefix("torch.") for part in (values.dtype, *DTYPES))
            stored = f"{kind}, {str(values.layout).removeprefix('torch.')}, on the device {values.device.type}"
            raise UserError(f"{file}: tensor '{name}' is {stored}; weights are read from dense {', '.join(valid)}")
        if not values.isfinite().all():
            raise UserError(f"{file}: tensor '{name}' is not finite")
    return {name: values.detach().float() for name, values in tensors.items()}
