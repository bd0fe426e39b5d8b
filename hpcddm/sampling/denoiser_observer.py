"""Looks at a denoiser in training: its loss on held-out images by noise level, and samples of it."""

import math
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int64
from torch import nn

from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.reader import CatalogReader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.jobs.unit import Unit
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import PROBE_IMAGES
from hpcddm.runs.ranges import HELDOUT, PROBE_SAMPLES, TRAIN
from hpcddm.runs.unit_keys import MONOLITH_ARM, expert_of
from hpcddm.runs.unit_training import ResolvedTraining
from hpcddm.sampling.denoiser_velocity import velocity_of
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.heldout_loss import LEVELS, HeldoutLoss
from hpcddm.sampling.sampler import sample
from hpcddm.training.log import Observation, Observer

DRAWN = 16
"""Number of samples."""


def denoiser_observer(experiment: Experiment, unit: Unit, training: ResolvedTraining) -> Observer | None:
    """Return the observer that `experts.samples_every_images` requests for a unit; None without it."""
    images, batch = experiment.experts.samples_every_images, experiment.experts.training.batch
    if images is None:
        return None
    interval = math.ceil(images * training.settings.batch / batch)
    return Observer(interval, DenoiserObserver(experiment, unit, training))


class DenoiserObserver:
    """Measures a denoiser on held-out images of its own cluster, the monolith on any, and draws samples like these.

    Of an extra expert no held-out image is known to be its own: its samples are like training images. All ranks
    do the same, as a network that is sharded needs. The same images and noise come every time.
    """

    def __init__(self, experiment: Experiment, unit: Unit, training: ResolvedTraining) -> None:
        self._experiment, self._unit, self._training = experiment, unit, training
        self._expert = expert_of(training.key)
        self._condition = conditions.create_condition(experiment.data, unit.input)
        self._space = create_space(experiment.data, unit.input)

    def __call__(self, network: nn.Module, device: torch.device) -> Observation:
        """Measure and draw."""
        numbers = self._heldout_numbers
        losses = {
            f"heldout_loss/t={level:g}": self._loss.of_network(network, numbers, level, device)
            for level in LEVELS
            if len(numbers)
        }
        return Observation(losses, self._samples(network, device))

    @cached_property
    def _loss(self) -> HeldoutLoss:
        return HeldoutLoss(self._experiment, self._unit, self._training)

    @cached_property
    def _heldout(self) -> CatalogReader:
        return run_samples.open_reader(self._unit, HELDOUT)

    @cached_property
    def _heldout_numbers(self) -> Int64[np.ndarray, " n"]:
        """Numbers of held-out images, of an expert those of its cluster; none for one that joined."""
        catalog = run_samples.open_unit_catalog(self._unit, HELDOUT)
        if isinstance(self._expert, int):
            return run_samples.probe_samples(catalog, self._experiment)[self._expert]
        size = 0 if self._expert else len(catalog)
        return keyed.random_subset(self._experiment.seed, PROBE_IMAGES, size, PROBE_SAMPLES)

    def _samples(self, network: nn.Module, device: torch.device) -> np.ndarray | None:
        """Draw samples as the evaluation would of this network alone; decoded on rank 0."""
        settings = self._experiment
        (null,) = self._condition.null(1)
        alone = Ensemble([], None, velocity_of(settings, self._training.denoiser, network), None, null)
        field = alone.field(MONOLITH_ARM, settings.evaluate)
        x = sample(
            field, settings.seed, range(DRAWN), self._sample_conditions.to(device), self._space, settings.evaluate
        )
        return self._space.to_images(x) if self._unit.ranks.rank == 0 else None

    @cached_property
    def _sample_conditions(self) -> torch.Tensor:
        """Conditions of the samples."""
        reader, numbers = self._heldout, self._heldout_numbers
        if not len(numbers) and self._expert is not None:
            reader = run_samples.open_reader(self._unit, TRAIN)
            numbers = run_samples.sample_expert_list(self._unit, self._expert, self._experiment.seed, DRAWN)
        return self._condition.of_samples(reader, np.resize(numbers, DRAWN))
