"""Switch: one strategy above a noise level, another one for the rest of the trajectory (HDDM, arXiv 2603.06741)."""

from typing import Any, ClassVar

import torch

from hpcddm.ensemble import strategies
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Strategy `first` at times above `until`, strategy `then` for the rest of the trajectory, down to t = 0."""

    pattern: ClassVar[str] = (
        r"(?P<first>[a-z0-9.-]+?)-until-(?P<until>[01](?:\.[0-9]{1,6})?)-then-(?P<then>[a-z0-9.-]+)"
    )
    usage: ClassVar[str] = "full-until-0.5-then-top-1, ..."
    needs_router: ClassVar[bool] = True
    per_trajectory: ClassVar[bool] = False

    first: str
    until: float
    then: str

    def parts(self) -> list[Any]:
        """Return the settings of both strategies. Raises `ConfigError` with the valid names."""
        from hpcddm import plugins

        return [plugins.parse("ensemble/strategies", name) for name in (self.first, self.then)]

    @property
    def label(self) -> str:
        """Canonical name."""
        first, then = (part.label for part in self.parts())
        return f"{first}-until-{self.until:g}-then-{then}"

    def check(self, experiment: Any) -> None:
        """Raise ValueError for strategies that cannot be switched."""
        if not 0 < self.until < 1:
            raise ValueError(f"{self.label}: the time must be above 0 and below 1")
        for part in self.parts():
            part.check(experiment)
            if part.per_trajectory or not part.needs_router:
                raise ValueError(f"{self.label}: {part.label} does not ask the router anew, so it cannot be switched")


def routing_weights(settings: Settings, posterior: torch.Tensor, context: Any) -> torch.Tensor:
    """Compute the weights (N, K) of the strategy in charge at the context's time."""
    first, then = settings.parts()
    return strategies.rule(first if context.time > settings.until else then, renormalise=False)(posterior, context)
