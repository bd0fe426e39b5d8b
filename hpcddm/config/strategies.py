"""Settings that all routing strategies have in common, and their names, such as 'top-2'."""

import re
from typing import ClassVar

from hpcddm.config import variants
from hpcddm.config.schema import VariantSettings
from hpcddm.errors import ConfigError


class StrategySettings(VariantSettings):
    """Settings of a routing strategy, written as one word."""

    package: ClassVar[str] = "sampling/strategies"

    pattern: ClassVar[str]
    """Regular expression of its names; its groups are the fields, as in 'top1' and 'top-2'."""
    usage: ClassVar[str]
    """Names to show as examples, as in 'top-1, top-2, ...'."""
    needs_router: ClassVar[bool] = True
    """False for a strategy that asks for no posterior of the router."""
    per_trajectory: ClassVar[bool] = False
    """True if the first weights are kept for the whole trajectory."""

    @property
    def label(self) -> str:
        """Canonical name; that of a strategy without fields is its `usage`."""
        return self.usage


def parse(text: str) -> StrategySettings:
    """Parse a strategy's settings from its name; `.label` is the canonical one.

    Raises `ConfigError` with the valid names.
    """
    for name, settings in variants.settings_classes(StrategySettings).items():
        if match := re.fullmatch(settings.pattern, text):
            return settings.model_validate({"name": name, **match.groupdict()})
    raise ConfigError(f"unknown name '{text}'; valid names: {usage()}")


def is_strategy(text: str) -> bool:
    """Tell if a text has the form of a strategy's name, its numbers right or wrong."""
    known = variants.settings_classes(StrategySettings).values()
    return any(re.fullmatch(settings.pattern, text) for settings in known)


def usage() -> str:
    """List the names of all strategies, with examples where they have fields."""
    return ", ".join(settings.usage for settings in variants.settings_classes(StrategySettings).values())
