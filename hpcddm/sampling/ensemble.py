"""The trained networks of a run, and the velocity field of each arm made from them."""

from dataclasses import dataclass, field
from typing import TypeVar

from jaxtyping import Int
from torch import Tensor

from hpcddm.config.sampling import SamplerSettings
from hpcddm.config.strategies import StrategySettings, parse
from hpcddm.runs.unit_keys import MONOLITH_ARM, STUDENT_ARM
from hpcddm.sampling.denoiser import Denoiser, Network
from hpcddm.sampling.velocity import (
    EnsembleVelocity,
    Posterior,
    active_experts,
    available_experts,
    oracle_or_routed_posterior,
    oracle_posterior,
    routed_posterior,
    single_model_posterior,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Ensemble:
    """Trained networks of a run; `null` is the null condition of guidance: a class id, or one row of states.

    None stands for an expert that is missing: the posterior is restricted to those that are there, whatever the
    strategy, so that every strategy makes of them what it would make of an ensemble of them alone.
    """

    experts: list[Denoiser | None]
    router: Network | None
    monolith: Denoiser | None
    student: Denoiser | None
    null: int | Tensor
    joined: dict[str, Denoiser] = field(default_factory=dict)
    """Experts that joined, by name: no posterior knows them, each is an arm alone."""

    def field(self, arm: str, sampler: SamplerSettings, clusters: Int[Tensor, " n"] | None = None) -> EnsembleVelocity:
        """Build the velocity field of an arm: 'monolith', 'student', 'expert-2', an expert that joined, or a strategy.

        clusters: the samples' known clusters, which only the oracle uses; a sample whose own expert is
        missing takes the router's posterior, as in 'full'.
        Raises `ConfigError` for an unknown name.
        """
        single = self._single(arm)
        if single is not None:
            return EnsembleVelocity([single], single_model_posterior, parse("full"), sampler, self.null, shared=True)
        strategy = parse(arm)
        # Without a router nothing tells the halves of guidance apart.
        shared = not strategy.needs_router and None not in self.experts
        return EnsembleVelocity(self.experts, self._posterior(strategy, clusters), strategy, sampler, self.null, shared)

    def _posterior(self, strategy: StrategySettings, clusters: Tensor | None) -> Posterior:
        """Return the posterior that the strategy asks for; raises `ValueError` without what it is made from."""
        if strategy.per_trajectory:
            # A draw that is kept must know nothing of how far an expert is trusted at its first time.
            return routed_posterior(_needed(self.router), available_experts(self.experts))
        if strategy.needs_router:
            return routed_posterior(_needed(self.router), active_experts(self.experts))
        if None not in self.experts:
            return oracle_posterior(_needed(clusters), len(self.experts))
        return oracle_or_routed_posterior(_needed(clusters), self.experts, _needed(self.router))

    def _single(self, arm: str) -> Denoiser | None:
        alone = {MONOLITH_ARM: self.monolith, STUDENT_ARM: self.student, **self.joined}
        if arm in alone:
            return alone[arm]
        if arm.startswith("expert-") and arm.removeprefix("expert-").isdecimal():
            return self.experts[int(arm.removeprefix("expert-"))]
        return None


def _needed(item: T | None) -> T:
    if item is None:
        raise ValueError("this strategy needs a router, or the samples' clusters, and none is given")
    return item
