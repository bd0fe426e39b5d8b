"""Base of the weightings of the loss."""

from abc import abstractmethod

from jaxtyping import Float
from torch import Tensor

from hpcddm.config.variants import S, Variant
from hpcddm.diffusion.objectives.conversions import Level


class Weighting(Variant[S]):
    """A weight of the squared error, by the level of noise."""

    @abstractmethod
    def loss_weight(self, prediction_type: str, level: Level) -> Float[Tensor, " n"]:
        """Compute the factor of the squared error of `prediction_type`, a key of `conversions.FORMS`, at a level."""
