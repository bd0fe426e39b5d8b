"""Threshold: the experts whose probability is above p (arXiv 2501.05450, sec. 3.4)."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Probability above which an expert is used; where none exceeds it, the likeliest is used."""

    pattern: ClassVar[str] = r"threshold-?(?P<p>[01](?:\.[0-9]{1,6})?)"
    usage: ClassVar[str] = "threshold-0.05, ..."
    needs_router: ClassVar[bool] = True
    per_trajectory: ClassVar[bool] = False

    p: float

    @property
    def label(self) -> str:
        """Canonical name."""
        return f"threshold-{self.p:g}"

    def check(self, experiment: Any) -> None:
        """Raise ValueError for a threshold that no probability can exceed."""
        if not 0 <= self.p < 1:
            raise ValueError(f"{self.label}: needs a probability of at least 0 and below 1")


def routing_weights(settings: Settings, posterior: torch.Tensor, context: Any) -> torch.Tensor:
    """Return the posterior (N, K) with values at or below the threshold set to zero, the likeliest expert's kept."""
    likeliest = F.one_hot(posterior.argmax(1), posterior.shape[1]).bool()
    return posterior * ((posterior > settings.p) | likeliest)
