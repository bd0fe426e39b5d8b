"""Base of the weightings of the loss."""

from abc import abstractmethod

from jaxtyping import Float
from torch import Tensor

from hpcddm.config.variants import S, Variant
from hpcddm.diffusion.objectives.conversions import Level


class Weighting(Variant[S]):
    """Weight of the squared error as a function of the noise level."""

    @abstractmethod
    def loss_weight(self, prediction_type: str, level: Level) -> Float[Tensor, " n"]:
        """Compute the factor of the squared error of a prediction.

        Args:
            prediction_type: Key of `conversions.LINEAR_FORMS`.
            level: Noise level of each image.

        Returns:
            (N,) weights.
        """
