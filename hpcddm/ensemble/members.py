"""The trained networks of a run, and the velocity field of each arm made from them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from hpcddm import plugins
from hpcddm.ensemble import strategies
from hpcddm.ensemble.velocity import EnsembleVelocity, known, known_or_routed, routed
from hpcddm.schema import VariantSettings

MONOLITH_ARM = "monolith"


@dataclass(frozen=True)
class Members:
    """Experts and monolith as velocities of the linear path; `null_class` stands for 'no class'.

    None stands for an expert that is missing: the posterior is restricted to those that are there, whatever the
    strategy, so that every strategy makes of them what it would make of an ensemble of them alone.
    """

    experts: list[Callable | None]
    router: nn.Module | None
    monolith: Callable | None
    null_class: int

    def field(self, arm: str, guidance: float, clusters: torch.Tensor | None = None) -> EnsembleVelocity:
        """The velocity field of an arm: 'monolith', 'expert-2' or a routing strategy.

        clusters: (N,), the samples' known clusters, which only the oracle asks for; a sample whose own expert is
        missing goes by the router, as in 'full'.
        Raises `ConfigError` for a name that means nothing.
        """
        single = self._single(arm)
        if single is not None:
            rule = strategies.rule(strategies.parse("full"))
            return EnsembleVelocity([single], self._alone, rule, self.null_class, guidance)
        strategy = strategies.parse(arm)
        posterior = self._posterior(strategy.needs_router, clusters)
        return EnsembleVelocity(self.experts, posterior, strategies.rule(strategy), self.null_class, guidance)

    def _posterior(self, needs_router: bool, clusters: torch.Tensor | None) -> Callable:
        if not needs_router and None not in self.experts:
            return known(clusters, len(self.experts))
        device = next(self.router.parameters()).device
        present = torch.tensor([expert is not None for expert in self.experts], device=device)
        return routed(self.router, present) if needs_router else known_or_routed(clusters, present, self.router)

    def _single(self, arm: str) -> Callable | None:
        if arm == MONOLITH_ARM:
            return self.monolith
        if arm.startswith("expert-") and arm.removeprefix("expert-").isdigit():
            return self.experts[int(arm.removeprefix("expert-"))]
        return None

    @staticmethod
    def _alone(x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(x), 1, device=x.device)


def as_velocity(model: nn.Module, settings: VariantSettings) -> Callable:
    """A denoiser as a function (x, t, classes) -> velocity of the linear path."""
    objective = plugins.load("objectives", settings.name).Objective(settings)
    return partial(objective.velocity, model)
