"""Sample-k: k distinct experts drawn from the tempered posterior at every step (arXiv 2501.05450, sec. 3.4)."""

from typing import Any, ClassVar

import torch

from hpcddm.config.sampling import StrategySettings
from hpcddm.config.schema import Positive
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Strategy, Weights, draw_expert, tempered


class SampleKSettings(StrategySettings):
    """Number of experts drawn from softmax(logits / temperature).

    The paper leaves open whether the k draws are averaged. Here they are distinct and share the sample by their
    posterior, as in top-k: only so can two draws be as good as top-2 where one is ruinous (its table 2).

    For 1 < k < K the mean velocity is biased: with P(S) the probability of the drawn set S, the mean weight of an
    expert, E[w_i] = sum over S with i of P(S) p_i / p(S), is not p_i. For k = 2 (0.6, 0.3, 0.1) becomes
    (0.657, 0.293, 0.05). Only k = 1 at temperature 1, and k = K at any, are unbiased.
    """

    pattern: ClassVar[str] = r"sample-?(?P<k>[1-9][0-9]*)(?:-at-(?P<temperature>[0-9]{1,4}(?:\.[0-9]{1,6})?))?"
    usage: ClassVar[str] = "sample-1, sample-2-at-0.5, ..."

    k: Positive
    temperature: float | None = None

    @property
    def label(self) -> str:
        """Canonical name."""
        return f"sample-{self.k}" + (f"-at-{self.temperature:g}" if self.temperature not in (None, 1) else "")

    def check(self, experiment: Any) -> None:
        """Raise ValueError when there are fewer experts, or when the temperature is zero."""
        if self.k > experiment.cluster.experts:
            raise ValueError(f"{self.label} needs {self.k} experts, there are {experiment.cluster.experts}")
        if self.temperature == 0:
            raise ValueError(f"{self.label}: the temperature must be above 0; top-{self.k} is its limit")


class SampleK(Strategy[SampleKSettings]):
    """Weights of distinct drawn experts; where fewer experts than k are possible, those share the sample."""

    def routing_weights(self, posterior: Weights, context: StepContext) -> Weights:
        remaining = tempered(posterior, self.settings.temperature or 1.0)
        drawn = torch.zeros_like(posterior)
        for number in range(self.settings.k):
            expert = draw_expert(remaining, context.uniform(number))
            drawn, remaining = drawn + expert, remaining * (1 - expert)
        shares = drawn * posterior
        return shares / shares.sum(1, keepdim=True)
