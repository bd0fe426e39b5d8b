"""The trained networks of a run, and the velocity field of each arm."""

from dataclasses import dataclass, field
from typing import TypeVar

from jaxtyping import Int
from torch import Tensor

from hpcddm.config.sampling import SamplerSettings, StrategySettings, parse_strategy
from hpcddm.runs.unit_keys import MONOLITH_ARM, STUDENT_ARM
from hpcddm.sampling.denoiser_velocity import DenoiserVelocity, NetworkFunction
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
    """Trained networks of a run.

    A missing expert is None. Every strategy then restricts the posterior to the experts that are present, as if the
    ensemble had no other experts.

    Args:
        experts: Velocities of the experts, in the order of the clusters.
        router: Function (x, t, condition) -> logits (N, K).
        monolith: Velocity of the single model.
        student: Velocity of the distilled model.
        null: Null condition of guidance: a class id, or one row of states.
        extra: Extra experts by name.
    """

    experts: list[DenoiserVelocity | None]
    router: NetworkFunction | None
    monolith: DenoiserVelocity | None
    student: DenoiserVelocity | None
    null: int | Tensor
    extra: dict[str, DenoiserVelocity] = field(default_factory=dict)
    """Extra experts by name; each is an arm of its own and has no part in any posterior."""

    def field(self, arm: str, sampler: SamplerSettings, clusters: Int[Tensor, " n"] | None = None) -> EnsembleVelocity:
        """Build the velocity field of an arm.

        Args:
            arm: 'monolith', 'student', 'expert-2', the name of an extra expert, or the label of a strategy such as
                'top-2'.
            sampler: Settings of the sampler.
            clusters: (N,) known clusters of the samples, which only the oracle uses. If the expert of a cluster is
                missing, these samples take the router's posterior, as in the strategy 'full'.

        Raises:
            ConfigError: No arm has this name.
        """
        single = self._single(arm)
        if single is not None:
            alone = ([single], single_model_posterior, parse_strategy("full"))
            return EnsembleVelocity(*alone, sampler, self.null, shared=True, arm=arm)
        strategy = parse_strategy(arm)
        # Without a router nothing tells the halves of guidance apart.
        shared = not strategy.needs_router and None not in self.experts
        posterior = self._posterior(strategy, clusters)
        return EnsembleVelocity(self.experts, posterior, strategy, sampler, self.null, shared, arm)

    def _posterior(self, strategy: StrategySettings, clusters: Tensor | None) -> Posterior:
        """Return the posterior that the strategy needs.

        Raises:
            ValueError: The strategy needs a router or clusters that are missing.
        """
        if strategy.per_trajectory:
            # A draw for the whole trajectory must not depend on which experts are active at its first time.
            return routed_posterior(_require_loaded(self.router), available_experts(self.experts))
        if strategy.needs_router:
            return routed_posterior(_require_loaded(self.router), active_experts(self.experts))
        if None not in self.experts:
            return oracle_posterior(_require_loaded(clusters), len(self.experts))
        return oracle_or_routed_posterior(_require_loaded(clusters), self.experts, _require_loaded(self.router))

    def _single(self, arm: str) -> DenoiserVelocity | None:
        alone = {MONOLITH_ARM: self.monolith, STUDENT_ARM: self.student, **self.extra}
        if arm in alone:
            return alone[arm]
        if arm.startswith("expert-") and arm.removeprefix("expert-").isdecimal():
            return self.experts[int(arm.removeprefix("expert-"))]
        return None


def _require_loaded(item: T | None) -> T:
    if item is None:
        raise ValueError("this strategy needs a router, or the samples' clusters, and none is given")
    return item


@dataclass(frozen=True)
class NetworkEvaluations:
    """Numbers of images that the experts together, and the router, evaluate."""

    experts: float = 0.0
    router: float = 0.0

    def __add__(self, other: "NetworkEvaluations") -> "NetworkEvaluations":
        return NetworkEvaluations(self.experts + other.experts, self.router + other.router)
