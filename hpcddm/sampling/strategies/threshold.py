"""Threshold: the experts whose probability is above p (arXiv 2501.05450, sec. 3.4)."""

from typing import Any, ClassVar

import torch.nn.functional as F

from hpcddm.config.sampling import StrategySettings
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Strategy, Weights


class ThresholdSettings(StrategySettings):
    """Probability above which an expert is used; where none exceeds it, the likeliest is used."""

    pattern: ClassVar[str] = r"threshold-?(?P<p>[01](?:\.[0-9]{1,6})?)"
    usage: ClassVar[str] = "threshold-0.05, ..."

    p: float

    @property
    def label(self) -> str:
        """Canonical name."""
        return f"threshold-{self.p:g}"

    def check(self, experiment: Any) -> None:
        """Raise ValueError for a threshold that no probability can exceed."""
        if not 0 <= self.p < 1:
            raise ValueError(f"{self.label}: needs a probability of at least 0 and below 1")


class Threshold(Strategy[ThresholdSettings]):
    """Posterior values above the threshold, and the likeliest expert's."""

    def routing_weights(self, posterior: Weights, context: StepContext) -> Weights:
        likeliest = F.one_hot(posterior.argmax(1), posterior.shape[1]).bool()
        return posterior * ((posterior > self.settings.p) | likeliest)
