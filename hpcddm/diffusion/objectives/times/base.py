"""Base of the distributions of training times."""

from abc import abstractmethod

from jaxtyping import Float
from torch import Tensor

from hpcddm.config.variants import S, Variant


class TimesDistribution(Variant[S]):
    """Distribution of training times over the range of a schedule."""

    @abstractmethod
    def training_times(self, uniform: Float[Tensor, " n"], lowest: float, highest: float) -> Float[Tensor, " n"]:
        """Map uniform random numbers to training times by the inverse of the distribution function.

        Args:
            uniform: (N,) uniform numbers in [0, 1).
            lowest: First time of the range.
            highest: Last time of the range.

        Returns:
            (N,) times in [lowest, highest].
        """
