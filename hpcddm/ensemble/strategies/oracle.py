"""Oracle: the expert of the evaluation image's own cluster (arXiv 2501.05450, sec. 3.4)."""

from typing import Any, ClassVar

import torch

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Nothing to set; in place of the router's posterior stands the one-hot `velocity.known` of the cluster ids.

    A sample whose own expert is missing goes by the router's posterior over those that are there, as in `full`.
    """

    pattern: ClassVar[str] = "oracle"
    usage: ClassVar[str] = "oracle"
    needs_router: ClassVar[bool] = False
    per_trajectory: ClassVar[bool] = False
    label: ClassVar[str] = "oracle"


def routing_weights(settings: Settings, posterior: torch.Tensor, context: Any) -> torch.Tensor:
    """Weights (N, K) from the one-hot posterior (N, K)."""
    return posterior
