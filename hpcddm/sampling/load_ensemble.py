"""The finished networks of a run, ready for inference in the precision that they were trained in."""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import torch
from torch import nn

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment, ExpertConfig
from hpcddm.config.models import ClassifierModelSettings
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.files import tensors
from hpcddm.jobs.devices import DTYPES
from hpcddm.models import build_classifier, build_denoiser, build_router
from hpcddm.models.base import Classifier
from hpcddm.runs.unit_keys import MONOLITH, ROUTER, STUDENT, expert_key, expert_keys, experts_of, joined_keys, name_of
from hpcddm.runs.weights_files import FINAL, Choice, is_made_of_powers, weights_file
from hpcddm.sampling import posthoc_ema
from hpcddm.sampling.conversions.base import Conversion
from hpcddm.sampling.denoiser import Denoiser
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.placements.base import Placement
from hpcddm.training.loop import load_weights

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
    fill = partial(_filled, settings, choice)
    evaluate = settings.evaluate
    configs = {expert_key(expert): settings.expert_config(expert) for expert in experts_of(settings)}
    configs = {
        key: config
        for key, config in (configs | dict.fromkeys(DENSE, settings.expert_config())).items()
        if key in needed
    }
    on_host = {
        key: fill(build_denoiser.build(settings, config), key, folder_of(key)).to(DTYPES[config.precision])
        for key, config in configs.items()
    }
    placed = variants.create(Placement, evaluate.placement).place(on_host, device)
    loaded = {key: _denoiser(settings, configs[key], network) for key, network in placed.items()}
    experts = [loaded.get(key) for key in expert_keys(settings)]
    joined = {name_of(key): loaded[key] for key in joined_keys(settings) if key in loaded}
    loaded_router = None
    if ROUTER in needed:
        loaded_router = build_router.load(
            settings, folder_of(ROUTER), partial(_ready, device, partial(fill, key=ROUTER))
        )
    (null,) = conditions.build(settings.data).null(1)
    return Ensemble(experts, loaded_router, loaded.get(MONOLITH), loaded.get(STUDENT), null, joined)


def _denoiser(settings: Experiment, config: ExpertConfig, network: Callable) -> Denoiser:
    conversion = variants.create(Conversion, settings.evaluate.conversion, config.precision)
    return Denoiser(network, build_denoiser.objective_of(config), conversion)


def load_measuring_network(
    settings: Experiment, key: str, folder_of: Callable[[str], Path], device: torch.device
) -> Classifier[ClassifierModelSettings]:
    """Load the extractor or the classifier, in fp32: distances must not depend on the precision of a sampler."""
    network = build_classifier.build(settings, key)
    load_weights(network, folder_of(key))
    return network.to(device)


def _ready(
    device: torch.device, fill: Callable[..., nn.Module], network: nn.Module, folder: Path, precision: str
) -> nn.Module:
    return fill(network, folder=folder).to(device, DTYPES[precision])


def _filled(settings: Experiment, choice: Choice, network: nn.Module, key: str, folder: Path) -> nn.Module:
    """Fill a network with the chosen weights of a unit; the bytes of their files must be those of the manifest."""
    if not is_made_of_powers(settings, key, choice):
        return load_weights(network, folder, weights_file(settings, key, choice))
    network.load_state_dict(posthoc_ema.average(settings, key, folder, choice, tensors.forms(network.state_dict())))
    return network.eval().requires_grad_(False)
