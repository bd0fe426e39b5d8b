"""Top-k: the k most probable experts (arXiv 2501.05450, sec. 3.4)."""

from typing import Any, ClassVar

import torch

from hpcddm.config.sampling import StrategySettings
from hpcddm.config.schema import Positive
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Strategy, Weights


class TopKSettings(StrategySettings):
    """Number of experts per sample."""

    pattern: ClassVar[str] = r"top-?(?P<k>[1-9][0-9]*)"
    usage: ClassVar[str] = "top-1, top-2, ..."

    k: Positive

    @property
    def label(self) -> str:
        """Canonical name."""
        return f"top-{self.k}"

    def check(self, experiment: Any) -> None:
        """Raise ValueError when there are fewer experts."""
        if self.k > experiment.cluster.experts:
            raise ValueError(f"{self.label} needs {self.k} experts, there are {experiment.cluster.experts}")


class TopK(Strategy[TopKSettings]):
    """Values of the k most probable experts.

    Examples:
        >>> from hpcddm.sampling.step_context import SampleStream
        >>> strategy = TopK(TopKSettings(name="top_k", k=2))
        >>> context = StepContext(SampleStream(seed=0, indices=[0]), step=0, time=1.0)
        >>> strategy.routing_weights(torch.tensor([[0.5, 0.125, 0.375]]), context).tolist()
        [[0.5, 0.0, 0.375]]
    """

    def routing_weights(self, posterior: Weights, context: StepContext) -> Weights:
        """Keep the k largest values of each row."""
        values, experts = posterior.topk(self.settings.k, dim=1)
        return torch.zeros_like(posterior).scatter(1, experts, values)
