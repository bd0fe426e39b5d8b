"""Oracle: the expert of the evaluation image's own cluster (arXiv 2501.05450, sec. 3.4)."""

from typing import Any, ClassVar

import torch

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings; `velocity.oracle_posterior` of the cluster ids replaces the router's posterior.

    A sample whose own expert is missing takes the router's posterior over the available experts, as in `full`.
    """

    pattern: ClassVar[str] = "oracle"
    usage: ClassVar[str] = "oracle"
    needs_router: ClassVar[bool] = False
    per_trajectory: ClassVar[bool] = False
    label: ClassVar[str] = "oracle"


def routing_weights(settings: Settings, posterior: torch.Tensor, context: Any) -> torch.Tensor:
    """Return the one-hot posterior (N, K) as weights (N, K)."""
    return posterior
