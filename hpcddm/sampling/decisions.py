"""Decisions of an ensemble along the trajectories of its samples: posterior, experts evaluated, estimates of x0."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, UInt8
from torch import Tensor

from hpcddm.config.sampling import SamplerSettings
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.diffusion.spaces.base import Space
from hpcddm.sampling.denoiser_velocity import Condition
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.sampler import sample, time_grid
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.velocity import EnsembleVelocity

Pictures = UInt8[np.ndarray, "n h w c"]


@dataclass(frozen=True)
class Decisions:
    """Decisions of an ensemble's arm about N samples, in S steps among K experts."""

    arm: str
    times: list[float]
    """(S,) times of the steps, from 1 downwards."""
    shown: list[int]
    """Steps of the T estimates."""
    posterior: Float64[np.ndarray, "n s k"]
    """Probabilities of the experts by the router at the sample's state of each step, with its condition."""
    weights: Float64[np.ndarray, "n s k"]
    """Weights of the experts' velocities; an expert without weight is not evaluated."""
    estimates: UInt8[np.ndarray, "n t h w c"]
    """Estimates x0 = x - t v of the image."""
    samples: Pictures
    alone: Mapping[int, Pictures]
    """Samples of each expert alone from the same noise."""


class DecisionRecorder:
    """Velocity field of an ensemble that records its decisions, once per step; the velocity stays the same.

    The attributes `posterior` and `weights` gain (N, K) per step, `estimates` (N, C, H, W) in the steps of `shown`.

    Args:
        field: Velocity field of an ensemble.
        sampler: Settings of the sampler.
        estimates: Number of estimates that are kept of a sample, at most.
    """

    def __init__(self, field: EnsembleVelocity, sampler: SamplerSettings, estimates: int):
        self.field, self.arm, self._sampler = field, field.arm, sampler
        steps, count = sampler.steps, min(estimates, sampler.steps)
        # The steps below the middles of as many equal parts of the trajectory.
        self.shown = [(2 * part + 1) * steps // (2 * count) for part in range(count)]
        self.posterior: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.estimates: list[Tensor] = []

    def __call__(self, x: Images, t: Float[Tensor, " n"], condition: Condition, context: StepContext) -> Images:
        """Return the velocity of the field at (x, t)."""
        velocity = self.field(x, t, condition, context)
        if context.step == len(self.posterior):
            self.posterior.append(self.field.posterior(x, t, condition))
            # With guidance the rows of the half without condition follow.
            self.weights.append(self.field.last_weights[: len(x)])
            if context.step in self.shown:
                # On the linear path x = (1 - t) x0 + t eps and v = eps - x0.
                self.estimates.append(x - t.view(-1, 1, 1, 1) * velocity)
        return velocity

    def decisions(self, space: Space[SpaceSettings], samples: Pictures, alone: Mapping[int, Pictures]) -> Decisions:
        """Return the decisions about the samples that were drawn.

        Args:
            space: Space of x.
            samples: Images of the samples.
            alone: Images of each expert alone.
        """
        posterior, weights = (torch.stack(kept, 1).double().cpu().numpy() for kept in (self.posterior, self.weights))
        estimates = [space.to_images(space.finish(x0)) for x0 in self.estimates]
        times = time_grid(self._sampler.steps, self._sampler.shift)[:-1]
        return Decisions(self.arm, times, self.shown, posterior, weights, np.stack(estimates, 1), samples, alone)


def draw_decisions(
    ensemble: Ensemble,
    arm: str,
    drawn_from: tuple[int, Sequence[int], Condition, Space[SpaceSettings], SamplerSettings],
    clusters: Int[Tensor, " n"] | None,
    estimates: int,
) -> Decisions:
    """Draw samples of an arm and of every expert alone, and record the decisions of the arm.

    Args:
        ensemble: Trained networks.
        arm: Label of a strategy that asks the router.
        drawn_from: Arguments of `sample` after the field.
        clusters: (N,) known clusters of the samples.
        estimates: Number of estimates of each sample, at most.
    """
    *_, space, sampler = drawn_from
    recorder = DecisionRecorder(ensemble.field(arm, sampler, clusters), sampler, estimates)
    samples = space.to_images(sample(recorder, *drawn_from))
    alone = {
        index: space.to_images(sample(ensemble.field(f"expert-{index}", sampler), *drawn_from))
        for index, expert in enumerate(ensemble.experts)
        if expert is not None
    }
    return recorder.decisions(space, samples, alone)
