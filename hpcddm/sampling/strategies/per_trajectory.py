"""One expert per trajectory, drawn at its start from p(k | x_1, t = 1, c) and kept to its end.

At t = 1 the state is pure noise and independent of the cluster, so the draw is from p(k | c). An expert's own flow
carries noise to the distribution of its cluster, so the samples' distribution is sum_k p(k | c) p(x_0 | k, c), which is
the data's: exact for exact experts and posterior, at the cost of one model.
"""

from typing import ClassVar

from hpcddm.config.sampling import StrategySettings
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Strategy, Weights, draw_expert


class PerTrajectorySettings(StrategySettings):
    """Variant without settings; both halves of guidance use the expert that was drawn."""

    pattern: ClassVar[str] = "per-trajectory"
    usage: ClassVar[str] = "per-trajectory"
    per_trajectory: ClassVar[bool] = True


class PerTrajectory(Strategy[PerTrajectorySettings]):
    """One-hot weights, drawn once."""

    def routing_weights(self, posterior: Weights, context: StepContext) -> Weights:
        return draw_expert(posterior, context.uniform(0))
