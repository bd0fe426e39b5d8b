"""Nucleus: one expert drawn at every step from the smallest set of mass p (arXiv 2501.05450, sec. 3.4)."""

import math
from typing import Any, ClassVar

import torch

from hpcddm.config.sampling import StrategySettings
from hpcddm.sampling.step_context import StepContext
from hpcddm.sampling.strategies.base import Strategy, Weights, draw_expert, tempered


class NucleusSettings(StrategySettings):
    """Mass of the set, and temperature of the posterior that it is taken and drawn from."""

    pattern: ClassVar[str] = (
        r"nucleus-?(?P<p>[01](?:\.[0-9]{1,6})?)(?:-at-(?P<temperature>[0-9]{1,4}(?:\.[0-9]{1,6})?))?"
    )
    usage: ClassVar[str] = "nucleus-0.9, nucleus-0.9-at-0.5, ..."

    p: float
    temperature: float | None = None

    @property
    def label(self) -> str:
        """Canonical name."""
        return f"nucleus-{self.p:g}" + (f"-at-{self.temperature:g}" if self.temperature not in (None, 1) else "")

    def check(self, experiment: Any) -> None:
        """Raise ValueError for a mass outside (0, 1] or a temperature of zero."""
        if not 0 < self.p <= 1:
            raise ValueError(f"{self.label}: the mass must be above 0 and at most 1")
        if self.temperature == 0:
            raise ValueError(f"{self.label}: the temperature must be above 0; top-1 is its limit")


class Nucleus(Strategy[NucleusSettings]):
    """One-hot weights, drawn within the smallest set of the given mass."""

    def routing_weights(self, posterior: Weights, context: StepContext) -> Weights:
        sharpened = tempered(posterior, self.settings.temperature or 1.0)
        likeliest, experts = sharpened.sort(dim=1, descending=True)
        # At mass 1 rounding must not leave out the least likely ones.
        mass = self.settings.p if self.settings.p < 1 else math.inf
        kept = likeliest * (likeliest.cumsum(1) - likeliest < mass)
        return draw_expert(torch.zeros_like(posterior).scatter(1, experts, kept), context.uniform(0))
