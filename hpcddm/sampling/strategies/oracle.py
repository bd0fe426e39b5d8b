"""Oracle: the expert of the evaluation image's own cluster (arXiv 2501.05450, sec. 3.4)."""

from typing import ClassVar

from hpcddm.config.sampling import StrategySettings
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Strategy, Weights


class OracleSettings(StrategySettings):
    """Variant without settings; `velocity.oracle_posterior` of the cluster ids replaces the router's posterior.

    A sample whose own expert is missing takes the router's posterior over the available experts, as in `full`.
    """

    pattern: ClassVar[str] = "oracle"
    usage: ClassVar[str] = "oracle"
    needs_router: ClassVar[bool] = False


class Oracle(Strategy[OracleSettings]):
    """One-hot posterior itself as weights."""

    def routing_weights(self, posterior: Weights, context: StepContext) -> Weights:
        return posterior
