"""Sample-k: k distinct experts drawn from the tempered posterior at every step (arXiv 2501.05450, sec. 3.4)."""

from typing import Any, ClassVar

import torch

from hpcddm.ensemble.draws import draw, tempered
from hpcddm.schema import Positive, VariantSettings


class Settings(VariantSettings):
    """Number of experts drawn from softmax(logits / temperature).

    The paper leaves open whether the k draws are averaged. Here they are distinct and share the sample by their
    posterior, as in top-k: only so can two draws be as good as top-2 where one is ruinous (its table 2).
    """

    pattern: ClassVar[str] = r"sample-?(?P<k>[1-9][0-9]*)(?:-at-(?P<temperature>[0-9]{1,4}(?:\.[0-9]{1,6})?))?"
    usage: ClassVar[str] = "sample-1, sample-2-at-0.5, ..."
    needs_router: ClassVar[bool] = True
    per_trajectory: ClassVar[bool] = False

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


def routing_weights(settings: Settings, posterior: torch.Tensor, context: Any) -> torch.Tensor:
    """Draw weights (N, K), rows summing to one; where fewer experts than k are possible, those share the sample."""
    remaining = tempered(posterior, settings.temperature or 1.0)
    drawn = torch.zeros_like(posterior)
    for number in range(settings.k):
        expert = draw(remaining, context.uniform(number))
        drawn, remaining = drawn + expert, remaining * (1 - expert)
    shares = drawn * posterior
    return shares / shares.sum(1, keepdim=True)
