"""The trained networks of a run, and the velocity field of each arm made from them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from hpcddm import plugins
from hpcddm.config import VariantSettings
from hpcddm.ensemble import strategies
from hpcddm.ensemble.velocity import EnsembleVelocity, known, routed

MONOLITH_ARM = "monolith"


@dataclass(frozen=True)
class Members:
    """Experts and monolith as velocities of the linear path; `null_class` stands for 'no class'."""

    experts: list[Callable]
    router: nn.Module | None
    monolith: Callable | None
    null_class: int

    def field(self, arm: str, guidance: float, clusters: torch.Tensor | None = None) -> EnsembleVelocity:
        """The velocity field of an arm: 'monolith', 'expert-2' or a routing strategy.

        clusters: (N,), the samples' known clusters, which only the oracle asks for.
        Raises `ConfigError` for a name that means nothing.
        """
        single = self._single(arm)
        if single is not None:
            rule = strategies.rule(strategies.parse("full"))
            return EnsembleVelocity([single], self._alone, rule, self.null_class, guidance)
        strategy = strategies.parse(arm)
        posterior = routed(self.router) if strategy.needs_router else known(clusters, len(self.experts))
        return EnsembleVelocity(self.experts, posterior, strategies.rule(strategy), self.null_class, guidance)

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
