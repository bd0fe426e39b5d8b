"""Uniform times over the schedule's range (arXiv 2501.05450, alg. 1; arXiv 2006.11239, alg. 1)."""

from jaxtyping import Float
from torch import Tensor

from hpcddm.config.objectives import TimesSettings
from hpcddm.diffusion.objectives.times.base import TimesDistribution


class UniformSettings(TimesSettings):
    """Variant without settings."""


class Uniform(TimesDistribution[UniformSettings]):
    """Uniform numbers over the schedule's range."""

    def training_times(self, uniform: Float[Tensor, " n"], lowest: float, highest: float) -> Float[Tensor, " n"]:
        return lowest + (highest - lowest) * uniform
