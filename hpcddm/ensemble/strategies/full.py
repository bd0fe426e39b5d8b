"""Full: every expert, weighted by its posterior (arXiv 2501.05450, eq. 4); exact for exact experts and posterior."""

from typing import Any, ClassVar

import torch

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings."""

    pattern: ClassVar[str] = "full"
    usage: ClassVar[str] = "full"
    needs_router: ClassVar[bool] = True
    per_trajectory: ClassVar[bool] = False
    label: ClassVar[str] = "full"


def routing_weights(settings: Settings, posterior: torch.Tensor, context: Any) -> torch.Tensor:
    """Return the posterior (N, K) as weights (N, K)."""
    return posterior
