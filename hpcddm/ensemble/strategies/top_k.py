"""Top-k: the k most probable experts (arXiv 2501.05450, sec. 3.4)."""

from typing import Any, ClassVar

import torch

from hpcddm.schema import Positive, VariantSettings


class Settings(VariantSettings):
    """Number of experts per sample."""

    pattern: ClassVar[str] = r"top-?(?P<k>[1-9][0-9]*)"
    usage: ClassVar[str] = "top-1, top-2, ..."
    needs_router: ClassVar[bool] = True
    per_trajectory: ClassVar[bool] = False

    k: Positive

    @property
    def label(self) -> str:
        """Canonical name."""
        return f"top-{self.k}"

    def check(self, experiment: Any) -> None:
        """Raise ValueError when there are fewer experts."""
        if self.k > experiment.cluster.experts:
            raise ValueError(f"{self.label} needs {self.k} experts, there are {experiment.cluster.experts}")


def routing_weights(settings: Settings, posterior: torch.Tensor, context: Any) -> torch.Tensor:
    """Return the k largest values of the posterior (N, K), the others zero."""
    values, experts = posterior.topk(settings.k, dim=1)
    return torch.zeros_like(posterior).scatter(1, experts, values)
