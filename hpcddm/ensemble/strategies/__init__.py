"""Routing strategies: how a posterior over experts becomes the weights of their velocities.

A strategy's `Settings` have `pattern`, a regular expression of its names ("top1", "top-2"), `needs_router`, and
`per_trajectory`: its first weights are kept for the whole trajectory. Its file defines
`routing_weights(settings, posterior, context)`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from hpcddm import plugins

ROOM = "ensemble/strategies"


def parse(name: str) -> Any:
    """Return the settings of the strategy that `name` means; `.label` is its canonical name.

    Raises `ConfigError` with the valid names.
    """
    return plugins.parse(ROOM, name)


def rule(settings: Any, renormalise: bool = True) -> Callable:
    """Return the function from posterior (N, K) and `StepContext` to weights (N, K).

    Rows sum to one; without `renormalise` experts that were chosen, not drawn, keep their posterior values.
    """
    routing_weights = partial(plugins.load(ROOM, settings.name).routing_weights, settings)
    if not renormalise:
        return routing_weights

    def normalised(posterior: Any, context: Any) -> Any:
        chosen = routing_weights(posterior, context)
        return chosen / chosen.sum(1, keepdim=True)

    return normalised
