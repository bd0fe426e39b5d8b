"""Velocity field of several experts, weighted by a posterior, with classifier-free guidance."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.sampling import SamplerSettings, StrategySettings
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.errors import UserError, require
from hpcddm.sampling.denoiser_velocity import Condition, DenoiserVelocity, NetworkFunction
from hpcddm.sampling.dispatch import weighted_velocity
from hpcddm.sampling.step_context import SampleStream, StepContext
from hpcddm.sampling.strategies.base import Strategy, Weights

Mask = Callable[[Tensor], Tensor]
"""Function from times t (n,) to bool (n, k): the experts that may have a weight."""
Posterior = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Function (x, t, condition) -> p(k | x, t, condition), (n, k)."""
VelocityField = Callable[[Tensor, Tensor, Tensor, StepContext], Tensor]
"""Function (x, t, condition, context) -> velocity of the linear path, of the shape of x."""


def available_experts(experts: Sequence[DenoiserVelocity | None]) -> Mask:
    """Return the mask of the experts that are not missing."""

    def available(t: Tensor) -> Tensor:
        return torch.stack([torch.full_like(t, expert is not None, dtype=torch.bool) for expert in experts], dim=1)

    return available


def active_experts(experts: Sequence[DenoiserVelocity | None]) -> Mask:
    """Return the mask of the active experts; if none is active at a time, of all available experts."""
    available = available_experts(experts)

    def active(t: Tensor) -> Tensor:
        inactive = torch.zeros_like(t, dtype=torch.bool)
        are_active = torch.stack([inactive if expert is None else expert.is_active(t) for expert in experts], dim=1)
        return torch.where(are_active.any(dim=1, keepdim=True), are_active, available(t))

    return active


def routed_posterior(router: NetworkFunction, allowed: Mask) -> Posterior:
    """Return the posterior from a router's logits, restricted to the allowed experts.

    Args:
        router: Function (x, t, condition) -> logits (N, K).
        allowed: Function from times (N,) to a mask (N, K).
    """

    def posterior(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        # Not p / p.sum() of the allowed ones: where another one has all the probability, that is 0 / 0.
        return router(x, t, condition).masked_fill(~allowed(t), -torch.inf).softmax(dim=1)

    return posterior


def oracle_posterior(clusters: Int[Tensor, " n"], num_experts: int) -> Posterior:
    """Return the one-hot posterior of samples with known clusters.

    Args:
        clusters: (N,) clusters of the samples.
        num_experts: Number of experts K.
    """
    one_hot = F.one_hot(clusters, num_experts).float()

    def posterior(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        # With guidance the batch may hold every sample twice.
        return one_hot.repeat(len(x) // len(one_hot), 1)

    return posterior


def oracle_or_routed_posterior(
    clusters: Int[Tensor, " n"], experts: Sequence[DenoiserVelocity | None], router: NetworkFunction
) -> Posterior:
    """Return the one-hot posterior if the expert of the sample's cluster is available, else the router's posterior.

    Args:
        clusters: (N,) clusters of the samples.
        experts: Experts; None for a missing one.
        router: Function (x, t, condition) -> logits (N, K).
    """
    one_hot, routed = oracle_posterior(clusters, len(experts)), routed_posterior(router, active_experts(experts))
    is_available = torch.tensor([expert is not None for expert in experts], device=clusters.device)[clusters, None]

    def posterior(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        has_expert = is_available.repeat(len(x) // len(is_available), 1)
        return torch.where(has_expert, one_hot(x, t, condition), routed(x, t, condition))

    return posterior


def single_model_posterior(x: Images, t: Float[Tensor, " n"], condition: Condition) -> Float[Tensor, "n 1"]:
    """Return ones: the posterior of an ensemble of one model."""
    return torch.ones(len(x), 1, device=x.device)


class EnsembleVelocity:
    """Velocity v(x, t, c) = sum_k w_k(x, t, c) v_k(x, t, c) of an ensemble (arXiv 2501.05450, eq. 4).

    With guidance g != 1, inside `guidance_interval`, the velocity is v(null) + g (v(c) - v(null)) (arXiv 2207.12598,
    eq. 6). An expert evaluates both halves of guidance in one batch. The two halves share the weights of the
    conditional half, or each half has the weights of its own posterior. The weights, with their random draws, are
    reused for `route_every_steps` steps, or for the whole trajectory if the strategy says so.

    The attributes `usage` and `entropy` gain one entry per step: the weights (K,) of the conditional half and the
    entropy () of its posterior in nats, both summed over the samples.

    Args:
        experts: Experts; None for a missing one.
        posterior: Function (x, t, condition) -> probabilities (N, K).
        strategy: Settings of the routing strategy.
        sampler: Settings of the sampler.
        null: Null condition: a class id, or one row of states.
        shared: True if both halves of guidance share weights, whatever the settings of sampler and strategy.
        arm: Name of the arm, for errors.
    """

    def __init__(
        self,
        experts: Sequence[DenoiserVelocity | None],
        posterior: Posterior,
        strategy: StrategySettings,
        sampler: SamplerSettings,
        null: int | Tensor,
        shared: bool = False,
        arm: str = "",
    ):
        self.experts, self.posterior, self.null = experts, posterior, null
        self.strategy, self.sampler, self.arm = strategy, sampler, arm
        self.shared = shared or strategy.per_trajectory or sampler.posteriors == "shared"
        self.usage: list[Tensor] = []
        self.entropy: list[Tensor] = []
        rule = variants.create(Strategy, strategy)
        self._weights_of = rule.normalised_weights if sampler.renormalise else rule.routing_weights
        self._kept_for: tuple[SampleStream, int, int] | None = None
        self._kept = (torch.empty(0), torch.empty(0))

    def __call__(self, x: Images, t: Float[Tensor, " n"], condition: Condition, context: StepContext) -> Images:
        """Compute the velocity.

        Args:
            x: (N, C, H, W) states on the linear path.
            t: (N,) times of the linear path.
            condition: (N, ...) conditions.
            context: Position on the trajectory.

        Returns:
            (N, C, H, W) velocities.

        Raises:
            UserError: The router's probabilities, with which some strategies would draw no expert, or a velocity is
                not finite. The message names the arm, the sample, the time, and the network at fault.
        """
        velocity = self._velocity(x, t, condition, context)
        finite = velocity.isfinite().flatten(1).all(1)
        if not finite.all():
            row = int(finite.int().argmin())
            one = slice(row, row + 1)
            where = f"{self.arm}: sample {context.stream.indices[row]} is NaN or infinite at t = {context.time:g}"
            raise UserError(f"{where}: {self._fault(x[one], t[one], condition[one], context)}")
        return velocity

    def _velocity(self, x: Images, t: Float[Tensor, " n"], condition: Condition, context: StepContext) -> Images:
        scale = self.guidance_at(context.time)
        if scale == 1:
            return weighted_velocity(self.experts, self._weights(x, t, condition, context), x, t, condition)
        null = self.null_of(condition)
        if self.shared:
            guided = [expert and partial(expert.guided, scale=scale) for expert in self.experts]
            return weighted_velocity(guided, self._weights(x, t, condition, context), x, t, condition, null)
        both = torch.cat([x, x]), torch.cat([t, t]), torch.cat([condition, null])
        conditional, unconditional = weighted_velocity(self.experts, self._weights(*both, context), *both).chunk(2)
        return torch.lerp(unconditional, conditional, scale)

    def guidance_at(self, time: float) -> float:
        """Return the guidance scale at a time: 1 outside the interval, where the null half is not evaluated."""
        low, high = self.sampler.guidance_interval
        return self.sampler.guidance if low <= time <= high else 1.0

    def null_of(self, condition: Condition) -> Condition:
        """Expand the null condition to the shape of `condition`."""
        return torch.as_tensor(self.null).to(condition).expand_as(condition)

    def _fault(self, x: Images, t: Float[Tensor, " n"], condition: Condition, context: StepContext) -> str:
        """Say which network's velocity of one sample, x: (1, C, H, W), is not finite, or that guidance is too large."""
        conditions = {"": condition, " without its condition": self.null_of(condition)}
        for number, expert in enumerate(self.experts):
            name = self.arm if len(self.experts) == 1 else f"expert-{number}"
            for addition, given in conditions.items():
                if expert and x.isfinite().all() and not expert(x, t, given).isfinite().all():
                    return f"the velocity of {name}{addition} is not finite; look at its training"
        return f"guidance {self.guidance_at(context.time):g} or the steps are too large"

    def _weights(self, x: Images, t: Float[Tensor, " n"], condition: Condition, context: StepContext) -> Weights:
        """Return the experts' weights: computed now, or reused from an earlier step."""
        every = self.sampler.route_every_steps
        number = 0 if self.strategy.per_trajectory else context.step // every
        reused_for = (context.stream, number, len(x))
        at_each_call = every == 1 and not self.strategy.per_trajectory
        if at_each_call or reused_for != self._kept_for:
            posterior = self.posterior(x, t, condition)
            fault = "the router's probabilities are NaN; look at its training"
            require(bool(posterior.isfinite().all()), f"{self.arm} at t = {context.time:g}: {fault}")
            self._kept_for, self._kept = reused_for, (posterior, self._weights_of(posterior, context))
        self._record(context, *self._kept)
        return self._kept[1]

    @property
    def last_weights(self) -> Weights:
        """Weights (N, K) of the last evaluation; with separate guidance halves the null half's rows follow."""
        return self._kept[1]

    def _record(self, context: StepContext, posterior: Weights, routing_weights: Weights) -> None:
        # A solver may evaluate more than once in a step; the first evaluation counts.
        if context.step == len(self.usage):
            images = len(context.stream.indices)
            self.usage.append(routing_weights[:images].sum(0))
            self.entropy.append(torch.special.entr(posterior[:images]).sum())
