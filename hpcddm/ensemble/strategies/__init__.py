"""Routing strategies: how a posterior over experts becomes the weights of their velocities.

A strategy's file says with `pattern` which names it answers to ("top1", "top-2") and holds
`weights(settings, posterior)`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from hpcddm import plugins

ROOM = "ensemble/strategies"


def parse(name: str) -> Any:
    """The settings of the strategy that `name` means; `.label` is its canonical name.

    Raises `ConfigError` with the valid names.
    """
    return plugins.parse(ROOM, name)


def rule(settings: Any) -> Callable:
    """The function from posterior (N, K) to weights (N, K), rows summing to one."""
    return partial(plugins.load(ROOM, settings.name).weights, settings)
