"""Optional packages whose networks some encoders run: imported when one is created, and without a network."""

import importlib
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from hpcddm.config import weights
from hpcddm.config.weights import SettingsWithWeights
from hpcddm.errors import UserError
from hpcddm.errors.next_step import install_command
from hpcddm.jobs.devices import DTYPES

INSTALL = {
    "transformers": ("transformers>=5",),
    "diffusers": ("diffusers>=0.35",),
    "open_clip": ("open_clip_torch>=3.3", "torchvision"),
    "timm": ("timm>=1.0.17", "torchvision"),
}
"""Names of the packages for pip; those of the second kind need the torchvision release that matches torch."""
QUIET_PACKAGES = ("transformers", "diffusers")
UNREADABLE = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError, SafetensorError)
_OPERATORS = "torchvision::nms does not exist"
_DEFINED: list[torch.library.Library] = []
"""Operators that are defined as long as the library that defines them lives."""


def import_package(name: str, own: SettingsWithWeights) -> ModuleType:
    """Import a package, in a process that from now on reads nothing from the Hugging Face hub.

    Raises `UserError` naming the variant and what to install.
    """
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        # All four import it if it is installed, whether they need it or not.
        if "torchvision" in INSTALL[name] or find_spec("torchvision"):
            import_torchvision()
        module = importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"encoder {own.name}: needs the package {name} ({error}); install it with:"
            f" {install_command(*INSTALL[name])}"
        ) from None
    if name in QUIET_PACKAGES:
        # A log would hold their progress bars and advice once per unit.
        module.utils.logging.set_verbosity_error()
        module.utils.logging.disable_progress_bar()
    return module


def import_torchvision() -> ModuleType:
    """Import torchvision, also a build for CUDA with a torch for CPUs, whose operators cannot be loaded.

    There its Python registers kernels of operators that nobody has defined; with their schemas defined all but those
    operators works. Raises ImportError without torchvision.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if torch.version.cuda is not None or _OPERATORS not in str(error):
            raise
    for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[module]
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _DEFINED.append(library)
    return importlib.import_module("torchvision")


def load_verified(own: SettingsWithWeights, load: Callable[[Path], Any], device: torch.device) -> Any:
    """Prove some weights and load them by a function of their folder, for inference in the settings' precision.

    Raises `UserError` naming the folder for other bytes, for pickles of more than tensors, and for another network.
    """
    folder = weights.verified_folder(own)
    try:
        network = load(folder)
        _require_numbers(network)
    except pickle.UnpicklingError:
        pickles = ", ".join(name for name in weights.list_files(own) if not name.endswith((".json", ".safetensors")))
        raise UserError(
            f"{folder}: weights of {own.name}: {pickles} holds more than tensors, and code in it is never executed;"
            " convert it to safetensors"
        ) from None
    except UNREADABLE as error:
        raise UserError(f"{folder}: weights of {own.name} cannot be loaded ({first_line(error)})") from error
    return network.to(device, DTYPES[own.precision]).eval().requires_grad_(False)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its kind if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Read tensors from a .safetensors file or a pickle that holds nothing but tensors.

    Packages differ between their versions in what they unpickle, so they are handed the tensors where they allow it.
    Raises an error of `UNREADABLE`, or `pickle.UnpicklingError`.
    """
    if path.suffix == ".safetensors":
        return load_file(path)
    with warnings.catch_warnings():
        # Of a program in TorchScript it warns, and then refuses it.
        warnings.simplefilter("ignore")
        stored = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(stored, dict) or not all(isinstance(value, torch.Tensor) for value in stored.values()):
        raise ValueError(f"{path.name} is not a state dict")
    return stored


def _require_numbers(network: torch.nn.Module) -> None:
    """Raise ValueError naming a tensor that holds values that are not numbers."""
    for name, values in network.state_dict().items():
        if values.is_floating_point() and values.isnan().any():
            raise ValueError(f"{name} holds values that are not numbers")


def from_pretrained(kind: Any, folder: Path) -> Any:
    """Load a network of transformers or diffusers; raises ValueError for weights that leave a part of it random."""
    network, report = kind.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(f"{len(missing)} tensors are missing, such as {missing[0]}")
    return network
