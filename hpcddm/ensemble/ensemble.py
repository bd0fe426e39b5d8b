"""The trained networks of a run, and the velocity field of each arm made from them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hpcddm.config import SamplerSettings
from hpcddm.ensemble import strategies
from hpcddm.ensemble.denoiser import Denoiser
from hpcddm.ensemble.velocity import (
    EnsembleVelocity,
    active_experts,
    available_experts,
    oracle_or_routed_posterior,
    oracle_posterior,
    routed_posterior,
    single_model_posterior,
)
from hpcddm.pipeline.evaluate import MONOLITH_ARM, STUDENT_ARM


@dataclass(frozen=True)
class Ensemble:
    """Trained networks of a run; `null` is the null condition of guidance: a class id, or one row of states.

    None stands for an expert that is missing: the posterior is restricted to those that are there, whatever the
    strategy, so that every strategy makes of them what it would make of an ensemble of them alone.
    """

    experts: list[Denoiser | None]
    router: Callable | None
    monolith: Denoiser | None
    student: Denoiser | None
    null: int | torch.Tensor

    def field(self, arm: str, sampler: SamplerSettings, clusters: torch.Tensor | None = None) -> EnsembleVelocity:
        """Build the velocity field of an arm: 'monolith', 'student', 'expert-2' or a routing strategy.

        clusters: (N,), the samples' known clusters, which only the oracle uses; a sample whose own expert is
        missing takes the router's posterior, as in 'full'.
        Raises `ConfigError` for an unknown name.
        """
        single = self._single(arm)
        if single is not None:
            return EnsembleVelocity(
                [single], single_model_posterior, strategies.parse("full"), sampler, self.null, shared=True
            )
        strategy = strategies.parse(arm)
        # Without a router nothing tells the halves of guidance apart.
        shared = not strategy.needs_router and None not in self.experts
        return EnsembleVelocity(self.experts, self._posterior(strategy, clusters), strategy, sampler, self.null, shared)

    def _posterior(self, strategy: Any, clusters: torch.Tensor | None) -> Callable:
        if strategy.per_trajectory:
            # A draw that is kept must know nothing of how far an expert is trusted at its first time.
            return routed_posterior(self.router, available_experts(self.experts))
        if strategy.needs_router:
            return routed_posterior(self.router, active_experts(self.experts))
        if None not in self.experts:
            return oracle_posterior(clusters, len(self.experts))
        return oracle_or_routed_posterior(clusters, self.experts, self.router)

    def _single(self, arm: str) -> Denoiser | None:
        dense = {MONOLITH_ARM: self.monolith, STUDENT_ARM: self.student}
        if arm in dense:
            return dense[arm]
        if arm.startswith("expert-") and arm.removeprefix("expert-").isdigit():
            return self.experts[int(arm.removeprefix("expert-"))]
        return None
