"""Switch: one strategy above a noise level, another one for the rest of the trajectory (HDDM, arXiv 2603.06741)."""

from typing import Any, ClassVar

from hpcddm.config import variants
from hpcddm.config.sampling import StrategySettings, parse_strategy
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Strategy, Weights


class SwitchSettings(StrategySettings):
    """Strategy `first` at times above `until`, strategy `then` for the rest of the trajectory, down to t = 0."""

    pattern: ClassVar[str] = (
        r"(?P<first>[a-z0-9.-]+?)-until-(?P<until>[01](?:\.[0-9]{1,6})?)-then-(?P<then>[a-z0-9.-]+)"
    )
    usage: ClassVar[str] = "full-until-0.5-then-top-1, ..."

    first: str
    until: float
    then: str

    def parts(self) -> tuple[StrategySettings, StrategySettings]:
        """Return the settings of both strategies. Raises `ConfigError` with the valid names."""
        return parse_strategy(self.first), parse_strategy(self.then)

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
                raise ValueError(
                    f"{self.label}: {part.label} cannot be switched: it does not evaluate the router at every step"
                )


class Switch(Strategy[SwitchSettings]):
    """Weights of the strategy in charge at the context's time."""

    def __init__(self, settings: SwitchSettings):
        super().__init__(settings)
        self.first, self.then = (variants.create(Strategy, part) for part in settings.parts())

    def routing_weights(self, posterior: Weights, context: StepContext) -> Weights:
        strategy = self.first if context.time > self.settings.until else self.then
        return strategy.routing_weights(posterior, context)
