"""The finished networks of a run, ready for inference in the precision that they were trained in."""

from collections.abc import Callable, Collection
from pathlib import Path

import torch
from torch import nn

from hpcddm.config import Experiment, Training
from hpcddm.ensemble.members import Members, as_velocity
from hpcddm.pipeline import MONOLITH, ROUTER, expert_key
from hpcddm.rundir import atomic, manifest
from hpcddm.runtime.unit import require
from hpcddm.stages import critics, route, train
from hpcddm.training.loop import WEIGHTS, load_weights


def load_members(
    settings: Experiment, folder_of: Callable[[str], Path], needed: Collection[str], device: torch.device
) -> Members:
    """Experts, router and monolith; `folder_of` maps a unit's key to its folder.

    needed: the keys of the units to load; None stands for the others, which may be missing.
    """

    def denoiser(key: str) -> Callable | None:
        if key not in needed:
            return None
        network = _ready(train.build(settings), folder_of(key), settings.experts.training, device)
        return as_velocity(network, settings.experts.objective)

    router = None
    if ROUTER in needed:
        router = _ready(route.build(settings), folder_of(ROUTER), settings.router.training, device)
    experts = [denoiser(expert_key(index)) for index in range(settings.cluster.experts)]
    return Members(experts, router, denoiser(MONOLITH), settings.data.num_classes)


def load_critic(settings: Experiment, key: str, folder_of: Callable[[str], Path], device: torch.device) -> nn.Module:
    """The extractor or the judge, in fp32: distances must not depend on the precision of a sampler."""
    critic = getattr(settings.critics, key.split("/")[1])
    return _verified(critics.build(settings, critic), folder_of(key)).to(device)


def device() -> torch.device:
    """Where inference runs."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _ready(network: nn.Module, folder: Path, training: Training, device: torch.device) -> nn.Module:
    dtype = torch.bfloat16 if training.precision == "bf16" else torch.float32
    return _verified(network, folder).to(device, dtype)


def _verified(network: nn.Module, folder: Path) -> nn.Module:
    """The network with its weights, whose bytes must be those that its manifest names."""
    found = manifest.read(folder)
    expected = {output.path: output.sha256 for output in found.outputs} if found else {}
    require(
        (folder / WEIGHTS).is_file() and atomic.sha256(folder / WEIGHTS) == expected.get(WEIGHTS),
        f"{folder / WEIGHTS}: its bytes are not those of its manifest; fetch it again, or remove {folder}",
    )
    return load_weights(network, folder)
