"""Base of the distributions of training times."""

from abc import abstractmethod

from jaxtyping import Float
from torch import Tensor

from hpcddm.config.variants import S, Variant


class TimesDistribution(Variant[S]):
    """A distribution of training times over a schedule's range."""

    @abstractmethod
    def training_times(self, uniform: Float[Tensor, " n"], lowest: float, highest: float) -> Float[Tensor, " n"]:
        """Compute times in [lowest, highest] from uniform numbers in [0, 1), by the inverse of their distribution."""
