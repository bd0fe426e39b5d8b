"""Reads weights in any of the public file formats; nothing that could execute code is ever unpickled."""

import argparse
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from hpcddm import plugins
from hpcddm.errors import UserError
from hpcddm.initial_weights import METADATA, OWN_WEIGHTS, described
from hpcddm.models.checkpoints.base import Layout, Stored
from hpcddm.models.checkpoints.settings import LayoutSettings
from hpcddm.rundir import atomic
from hpcddm.rundir.reading import need_json

DIFFUSERS_WEIGHTS = "diffusion_pytorch_model.safetensors"
PICKLES = (".pt", ".pth", ".bin")


def read(path: Path) -> Stored:
    """Read a .safetensors file, a .pt or .pth file without pickled code, a diffusers folder or a unit of a run.

    Raises `UserError` naming the file when it is missing, torn, foreign, not finite or could execute code.
    """
    file = _weights_of(path)
    metadata: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    if file.suffix == ".safetensors":
        tensors, metadata = _safetensors(file)
    elif file.suffix in PICKLES:
        tensors, arguments = _unpickled(file)
    else:
        raise UserError(f"{file}: weights are read from .safetensors, {', '.join(PICKLES)} or a folder that holds them")
    if not tensors:
        raise UserError(f"{file}: holds no tensors")
    for name, values in tensors.items():
        if not values.isfinite().all():
            raise UserError(f"{file}: tensor '{name}' is not finite")
    tensors = {name: values.float() for name, values in tensors.items()}
    digest = atomic.sha256(file)
    config = _json(file.with_name("config.json")) or {}
    return Stored(file, digest, tensors, config, described(file, metadata, digest), arguments)


def layout_names() -> tuple[str, ...]:
    """List the names of all layouts."""
    return plugins.names(LayoutSettings.room)


def layout(name: str) -> Layout[LayoutSettings]:
    """Return the layout of this name.

    Raises `ConfigError` with the names of all layouts.
    """
    return plugins.create(Layout, LayoutSettings.model_validate({"name": name}))


def layout_of(stored: Stored) -> str:
    """Return the name of the layout that recognises a file's tensors.

    Raises `UserError` with the names of all layouts.
    """
    for name in layout_names():
        if layout(name).recognises(stored):
            return name
    some = ", ".join(sorted(stored.tensors)[:3])
    raise UserError(f"{stored.path}: none of the layouts {', '.join(layout_names())} has tensors such as {some}")


def _weights_of(path: Path) -> Path:
    candidates = [path, path / OWN_WEIGHTS, path / DIFFUSERS_WEIGHTS, path / "transformer" / DIFFUSERS_WEIGHTS]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if path.is_dir():
        raise UserError(f"{path}: neither {OWN_WEIGHTS} nor {DIFFUSERS_WEIGHTS} lies there")
    raise UserError(f"{path}: no such file or folder")


def _safetensors(file: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    try:
        with safe_open(file, "pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}
            metadata = opened.metadata() or {}
        return tensors, json.loads(metadata.get(METADATA, "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{file}: torn, or no safetensors file ({error}); fetch it again") from None


def _unpickled(file: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors (EMA first, else the model's) and the arguments of the train.py that wrote them."""
    try:
        # A Namespace only holds values: whatever else stands in it has to be harmless, too.
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            # A warning about how a plain pickle was made would not help the reader.
            warnings.simplefilter("ignore")
            values = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        advice = "load it where you trust it and save its tensors alone, best with safetensors.torch.save_file"
        raise UserError(f"{file}: holds more than tensors, or is none; unpickling could run code; {advice}") from None
    except Exception as error:
        # What torch raises over a torn file is not limited to any kind.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{file}: torn, or no checkpoint of torch ({reason})") from None
    arguments = values.get("args") if isinstance(values, dict) else None
    for key in ("ema", "model", "state_dict"):
        if isinstance(values, dict) and isinstance(values.get(key), dict):
            values = values[key]
    if not isinstance(values, dict) or not all(isinstance(value, torch.Tensor) for value in values.values()):
        raise UserError(f"{file}: needs a state dict, a mapping from names to tensors")
    return values, vars(arguments) if isinstance(arguments, argparse.Namespace) else {}


def _json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    values: dict[str, Any] = need_json(path, follows_links=True)
    return values
