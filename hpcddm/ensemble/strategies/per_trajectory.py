"""One expert per trajectory, drawn at its start from p(k | x_1, t = 1, c) and kept to its end.

At t = 1 the state is pure noise and independent of the cluster, so the draw is from p(k | c). An expert's own flow
carries noise to the distribution of its cluster, so the samples' distribution is sum_k p(k | c) p(x_0 | k, c), which is
the data's: exact for exact experts and posterior, at the cost of one model.
"""

from typing import Any, ClassVar

import torch

from hpcddm.ensemble.draws import draw
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings; both halves of guidance use the expert that was drawn."""

    pattern: ClassVar[str] = "per-trajectory"
    usage: ClassVar[str] = "per-trajectory"
    needs_router: ClassVar[bool] = True
    per_trajectory: ClassVar[bool] = True
    label: ClassVar[str] = "per-trajectory"


def routing_weights(settings: Settings, posterior: torch.Tensor, context: Any) -> torch.Tensor:
    """Draw one-hot weights (N, K)."""
    return draw(posterior, context.uniform(0))
