"""The finished networks of a run, ready for inference in the precision that they were trained in."""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import torch
from torch import nn

from hpcddm import plugins
from hpcddm.conditions import base as conditions
from hpcddm.config import Experiment, ExpertConfig
from hpcddm.devices import DTYPES
from hpcddm.ensemble.conversions.base import Conversion
from hpcddm.ensemble.denoiser import Denoiser
from hpcddm.ensemble.ensemble import Ensemble
from hpcddm.ensemble.placements.base import Placement
from hpcddm.models.base import Classifier
from hpcddm.models.settings import ClassifierModelSettings
from hpcddm.networks import denoisers, measuring, router
from hpcddm.pipeline.keys import MONOLITH, ROUTER, STUDENT, expert_key, name_of
from hpcddm.pipeline.lists import experts_of
from hpcddm.pipeline.snapshots import FINAL, Choice, weights_file
from hpcddm.pipeline.train import expert_keys, joined_keys
from hpcddm.rundir import manifest
from hpcddm.training.loop import WEIGHTS, load_weights

DENSE = (MONOLITH, STUDENT)


def load_ensemble(
    settings: Experiment,
    folder_of: Callable[[str], Path],
    needed: Collection[str],
    device: torch.device,
    choice: Choice = FINAL,
) -> Ensemble:
    """Load experts of both kinds, router, monolith and student; `folder_of` maps a unit's key to its folder.

    needed: the keys of the units to load; None stands for the others, which may be missing. The denoisers' weights lie
    where `evaluate.placement` wants them. choice: which of their weights.
    """
    file_of = partial(weights_file, settings, choice=choice)
    evaluate = settings.evaluate
    configs = {expert_key(expert): settings.expert_config(expert) for expert in experts_of(settings)}
    configs = {
        key: config
        for key, config in (configs | dict.fromkeys(DENSE, settings.expert_config())).items()
        if key in needed
    }
    on_host = {
        key: _verified(denoisers.build(settings, config), folder_of(key), file_of(key)).to(DTYPES[config.precision])
        for key, config in configs.items()
    }
    placed = plugins.create(Placement, evaluate.placement).place(on_host, device)
    loaded = {key: _denoiser(settings, configs[key], network) for key, network in placed.items()}
    experts = [loaded.get(key) for key in expert_keys(settings)]
    joined = {name_of(key): loaded[key] for key in joined_keys(settings) if key in loaded}
    loaded_router = None
    if ROUTER in needed:
        loaded_router = router.load(settings, folder_of(ROUTER), partial(_ready, device, file_of(ROUTER)))
    (null,) = conditions.build(settings.data).null(1)
    return Ensemble(experts, loaded_router, loaded.get(MONOLITH), loaded.get(STUDENT), null, joined)


def _denoiser(settings: Experiment, config: ExpertConfig, network: Callable) -> Denoiser:
    conversion = plugins.create(Conversion, settings.evaluate.conversion, config.precision)
    return Denoiser(network, denoisers.objective_of(config), conversion)


def load_measuring_network(
    settings: Experiment, key: str, folder_of: Callable[[str], Path], device: torch.device
) -> Classifier[ClassifierModelSettings]:
    """Load the extractor or the classifier, in fp32: distances must not depend on the precision of a sampler."""
    network = measuring.build(settings, key)
    _verified(network, folder_of(key))
    return network.to(device)


def _ready(device: torch.device, file: str, network: nn.Module, folder: Path, precision: str) -> nn.Module:
    return _verified(network, folder, file).to(device, DTYPES[precision])


def _verified(network: nn.Module, folder: Path, file: str = WEIGHTS) -> nn.Module:
    """Load a network's weights, whose bytes must be those that its manifest names."""
    manifest.intact(folder, file)
    return load_weights(network, folder, file)
