"""Trained networks that draw images and give velocities: those of a run, or of a published ensemble."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from hpcddm.config.class_names import class_number
from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.experiment import Experiment
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.spaces.base import Space, create_space
from hpcddm.errors import ConfigError
from hpcddm.jobs.devices import current_device
from hpcddm.pipeline.required_units import units_of_strategy
from hpcddm.runs.run_dir import Locate
from hpcddm.runs.unit_keys import EXPERT_LISTS
from hpcddm.sampling.decisions import Decisions, draw_decisions
from hpcddm.sampling.draw_images import ImageRequest, RequestedConditions, draw
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.step_context import SampleStream, StepContext

ESTIMATES = 8
"""Estimates of a sample on its way from noise."""


class TrainedModel(ABC):
    """Trained networks, which are loaded when a method first needs them and then kept in memory.

    Methods with an argument `strategy` take any value of `hpcddm sample --strategy`. The default is the first strategy
    of the evaluation.

    Args:
        experiment: Settings of the experiment.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self._ensembles: dict[tuple[str, ...], Ensemble] = {}

    @property
    @abstractmethod
    def strategies(self) -> list[str]:
        """Strategies of the evaluation, then single models; `sample` takes others such as 'top-3', too."""

    @property
    def _default_strategy(self) -> str:
        """First strategy of the evaluation."""
        return self.experiment.evaluate.strategies[0]

    @property
    @abstractmethod
    def class_names(self) -> list[str]:
        """Names of the classes, by class number; empty for images without classes."""

    @abstractmethod
    def _known_class_names(self) -> list[str]:
        """Return `class_names`, or numbers while the names are not known."""

    @abstractmethod
    def output_locator(self) -> Locate:
        """Return a function that locates outputs of units; it raises `UserError` for what is not there."""

    @abstractmethod
    def _request_conditions(self, request: ImageRequest, is_oracle: bool) -> RequestedConditions:
        """Return the conditions of requested images and, for the oracle, their clusters."""

    @abstractmethod
    def _present(self, units: Sequence[str]) -> list[str]:
        """Return the units among those of a strategy that are there; raise `UserError` if too few are."""

    @abstractmethod
    def _load(self, units: Sequence[str]) -> Ensemble:
        """Load the networks of some units."""

    @cached_property
    def condition(self) -> conditions.Condition[ConditionSettings]:
        """Condition of the networks: its `of_classes`, `of_prompts`, `of_samples` and `null` make conditions."""
        return conditions.create_condition(self.experiment.data, self.output_locator())

    @cached_property
    def space(self) -> Space[SpaceSettings]:
        """Space of x: its `shape`, the conversion `to_model` from images, and the conversion `to_images` back."""
        return create_space(self.experiment.data, self.output_locator())

    def sample(
        self,
        count: int,
        strategy: str | None = None,
        classes: Sequence[int | str] = (),
        prompts: Sequence[str] = (),
        seed: int = 0,
        advance: Callable[[int], object] | None = None,
    ) -> UInt8[np.ndarray, "n h w c"]:
        """Draw images of classes or prompts, or of a run with the conditions of its evaluation set.

        The same seed gives the same images as `hpcddm sample`.

        Args:
            count: Number of images.
            strategy: Strategy that combines the experts; None for the default.
            classes: Numbers or names of the classes that the images have in turn.
            prompts: Prompts that the images have in turn; of a run, a warning names their words that no training
                caption has.
            seed: Seed of the noise.
            advance: Called after each batch with the number of its images; None for nothing.

        Returns:
            Images, (count, H, W, C), uint8.

        Raises:
            ConfigError: The strategy or a class is unknown.
            UserError: A network that the strategy needs is missing.
        """
        arm, evaluate = strategy or self._default_strategy, self.experiment.evaluate
        requested, ensemble = self._requested(count, arm, classes, prompts), self.ensemble(arm)
        return draw(ensemble, arm, self.space, evaluate, requested, seed, advance or (lambda images: None))

    def decisions(
        self,
        count: int,
        strategy: str | None = None,
        classes: Sequence[int | str] = (),
        prompts: Sequence[str] = (),
        seed: int = 0,
    ) -> Decisions:
        """Draw images as `sample` does, in one batch, and record what the ensemble decides on the way.

        Args:
            count: Number of images.
            strategy: Strategy that asks the router; None for the default.
            classes: Numbers or names of the classes that the images have in turn.
            prompts: Prompts that the images have in turn.
            seed: Seed of the noise.

        Returns:
            Posterior, weights and estimates at every step, the samples, and those of each expert alone.

        Raises:
            ConfigError: The strategy or a class is unknown.
            UserError: A network that the strategy needs is missing.
        """
        arm, device = strategy or self._default_strategy, current_device()
        requested = self._requested(count, arm, classes, prompts)
        clusters = None if requested.clusters is None else requested.clusters.to(device)
        drawn_from = seed, range(count), requested.conditions.to(device), self.space, self.experiment.evaluate
        return draw_decisions(self.ensemble(arm), arm, drawn_from, clusters, ESTIMATES)

    def _requested(
        self, count: int, arm: str, classes: Sequence[int | str], prompts: Sequence[str]
    ) -> RequestedConditions:
        request = ImageRequest(count, self._class_numbers(classes), prompts)
        return self._request_conditions(request, EXPERT_LISTS in units_of_strategy(self.experiment, arm))

    def _class_numbers(self, classes: Sequence[int | str]) -> list[int]:
        names, numbers = self._known_class_names() if classes else [], list[int]()
        for name in map(str, classes):
            try:
                numbers.append(class_number(name, names))
            except ValueError as error:
                raise ConfigError(f"classes: {name}: {error}") from None
        return numbers

    def velocity(
        self,
        x: Float[Tensor, "n c h w"],
        time: float,
        condition: conditions.Conditions,
        strategy: str | None = None,
        clusters: Int[Tensor, " n"] | None = None,
        seed: int = 0,
    ) -> Float[Tensor, "n c h w"]:
        """Evaluate the velocity v = eps - x0 that the sampler follows at one time, with the guidance of the evaluation.

        Args:
            x: Noisy samples in the space of x, (N, C, H, W).
            time: Time in [0, 1]: 0 for data, 1 for noise.
            condition: Conditions of the N samples, made by `condition`.
            strategy: Strategy that combines the experts; None for the default.
            clusters: Known clusters of the samples, (N,); only the strategy 'oracle' reads them.
            seed: Seed for strategies that draw experts at random.

        Returns:
            Velocity, (N, C, H, W).

        Raises:
            ConfigError: The strategy is unknown.
            UserError: A network that the strategy needs is missing.
        """
        arm, device = strategy or self._default_strategy, current_device()
        known_clusters = None if clusters is None else clusters.to(device)
        field = self.ensemble(arm).field(arm, self.experiment.evaluate, known_clusters)
        t = torch.full((len(x),), time, dtype=x.dtype, device=device)
        context = StepContext(SampleStream(seed, range(len(x))), 0, time)
        with torch.no_grad():
            return field(x.to(device), t, condition.to(device), context)

    def ensemble(self, strategy: str) -> Ensemble:
        """Load the networks that a strategy needs, without experts that are missing.

        Args:
            strategy: Strategy that combines the experts.

        Raises:
            ConfigError: The strategy is unknown.
            UserError: A network that the strategy cannot omit is missing.
        """
        units = tuple(units_of_strategy(self.experiment, strategy))
        if units not in self._ensembles:
            self._ensembles[units] = self._load(self._present(units))
        return self._ensembles[units]
