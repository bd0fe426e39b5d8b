"""Load the finished networks of a run for inference, in the precision of their training."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, FiniteFloat
from torch import nn

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.models import ClassifierModelSettings
from hpcddm.config.schema import StrictModel, validate
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.errors import require
from hpcddm.files import tensors
from hpcddm.jobs.devices import DTYPES
from hpcddm.models import build_classifier, build_denoiser, build_router
from hpcddm.models.base import Classifier
from hpcddm.models.calibrated_router import CalibratedRouter
from hpcddm.runs import manifest
from hpcddm.runs.files import CALIBRATION
from hpcddm.runs.unit_keys import (
    MONOLITH,
    ROUTER,
    STUDENT,
    all_experts,
    expert_key,
    expert_keys,
    extra_expert_keys,
    unit_name,
)
from hpcddm.runs.unit_training import resolve_training
from hpcddm.runs.weights_files import FINAL, WeightsChoice, uses_power_averages, weights_file
from hpcddm.sampling import posthoc_ema
from hpcddm.sampling.denoiser_velocity import velocity_of
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.placements.base import Placement
from hpcddm.training.loop import load_weights

DENSE = (MONOLITH, STUDENT)


class Calibration(StrictModel):
    """Content of the file with a router's calibration."""

    log_prior: list[FiniteFloat]
    levels: list[FiniteFloat]
    temperatures: list[Annotated[FiniteFloat, Field(gt=0)]]

    def is_of(self, num_experts: int) -> bool:
        """Return True if the calibration is whole, and of a router of so many experts."""
        return len(self.log_prior) == num_experts and len(self.levels) == len(self.temperatures) > 1


def load_ensemble(
    experiment: Experiment,
    folder_of: Callable[[str], Path],
    needed: Collection[str],
    device: torch.device,
    choice: WeightsChoice = FINAL,
) -> Ensemble:
    """Load experts, extra experts, router, monolith and student.

    The setting `evaluate.placement` decides where the denoisers' weights are stored.

    Args:
        experiment: Settings of the experiment.
        folder_of: Function from the key of a unit to its folder.
        needed: Keys of the units to load; the other networks become None, and their units may be missing.
        device: Device of the samples.
        choice: Weights to load, such as a snapshot; the final weights by default.

    Raises:
        UserError: A file is damaged or does not match the manifest of its unit.
    """

    def fill(network: nn.Module, key: str) -> nn.Module:
        return load_unit_weights(experiment, choice, network, key, folder_of(key))

    return assemble(experiment, needed, device, fill, lambda: read_calibration(experiment, folder_of(ROUTER)))


def assemble(
    experiment: Experiment,
    needed: Collection[str],
    device: torch.device,
    fill: Callable[[nn.Module, str], nn.Module],
    calibration: Callable[[], Calibration | None],
) -> Ensemble:
    """Build the networks of some units, fill and place them.

    Args:
        experiment: Settings of the experiment.
        needed: Keys of the units; the other networks become None.
        device: Device of the samples.
        fill: Function that fills a network on the host with the weights of a unit, and returns it.
        calibration: Function that returns the calibration of the router; called if the router is needed.
    """
    keys = (*map(expert_key, all_experts(experiment)), *DENSE)
    configs = {key: resolve_training(experiment, key).denoiser for key in keys if key in needed}
    on_host = {
        key: fill(build_denoiser.build(experiment, config), key).to(DTYPES[config.precision])
        for key, config in configs.items()
    }
    placed = variants.create(Placement, experiment.evaluate.placement).place(on_host, device)
    loaded = {key: velocity_of(experiment, configs[key], network) for key, network in placed.items()}
    experts = [loaded.get(key) for key in expert_keys(experiment)]
    extra = {unit_name(key): loaded[key] for key in extra_expert_keys(experiment) if key in loaded}
    router = None
    if ROUTER in needed:
        router = fill(build_router.build(experiment), ROUTER).to(device, DTYPES[build_router.precision(experiment)])
        if known := calibration():
            router = CalibratedRouter(router, known.log_prior, known.levels, known.temperatures).eval()
    (null,) = conditions.create_condition(experiment.data).null(1)
    return Ensemble(experts, router, loaded.get(MONOLITH), loaded.get(STUDENT), null, extra)


def load_evaluator(
    experiment: Experiment, key: str, folder_of: Callable[[str], Path], device: torch.device
) -> Classifier[ClassifierModelSettings]:
    """Load the feature extractor or the classifier.

    The weights stay in fp32, because distances must not depend on the precision of a sampler.

    Args:
        experiment: Settings of the experiment.
        key: Key of the evaluator's unit.
        folder_of: Function from the key of a unit to its folder.
        device: Device of the network.
    """
    network = build_classifier.build(experiment, key)
    load_weights(network, folder_of(key))
    return network.to(device)


def read_calibration(experiment: Experiment, folder: Path) -> Calibration | None:
    """Read the calibration of a finished router; None if its unit's folder has none.

    Raises:
        UserError: The file does not match the manifest, or is of another number of experts.
    """
    if CALIBRATION not in manifest.output_names(folder):
        return None
    place = str(folder / CALIBRATION)
    calibration = validate(Calibration, manifest.read_verified_json(folder, CALIBRATION), place)
    is_whole = calibration.is_of(experiment.cluster.experts)
    require(is_whole, f"{place}: is not of {experiment.cluster.experts} experts; fetch it again, or remove {folder}")
    return calibration


def load_unit_weights(
    experiment: Experiment, choice: WeightsChoice, network: nn.Module, key: str, folder: Path
) -> nn.Module:
    """Fill a network with the chosen weights of a unit, whose files must match the manifest."""
    if not uses_power_averages(experiment, key, choice):
        return load_weights(network, folder, weights_file(experiment, key, choice))
    specs = tensors.tensor_specs(network.state_dict())
    network.load_state_dict(posthoc_ema.average(experiment, key, folder, choice, specs))
    return network.eval().requires_grad_(False)
