"""Full: every expert, weighted by its posterior (arXiv 2501.05450, eq. 4); exact for exact experts and posterior."""

from typing import ClassVar

from hpcddm.config.sampling import StrategySettings
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Strategy, Weights


class FullSettings(StrategySettings):
    """Variant without settings."""

    pattern: ClassVar[str] = "full"
    usage: ClassVar[str] = "full"


class Full(Strategy[FullSettings]):
    """Posterior itself as weights."""

    def routing_weights(self, posterior: Weights, context: StepContext) -> Weights:
        return posterior
