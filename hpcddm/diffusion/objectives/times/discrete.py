"""Equally spaced times, all equally often, as in DDPM's training (arXiv 2006.11239, alg. 1)."""

from jaxtyping import Float
from torch import Tensor

from hpcddm.config.objectives import TimesSettings
from hpcddm.config.schema import Positive
from hpcddm.diffusion.objectives.times.base import TimesDistribution


class DiscreteSettings(TimesSettings):
    """Number of times `levels`: i / levels for i = 0 ... levels - 1."""

    levels: Positive = 1000


class Discrete(TimesDistribution[DiscreteSettings]):
    """Times i / levels, each with probability 1 / levels."""

    def training_times(self, uniform: Float[Tensor, " n"], lowest: float, highest: float) -> Float[Tensor, " n"]:
        return ((uniform * self.settings.levels).floor() / self.settings.levels).clamp(lowest, highest)
