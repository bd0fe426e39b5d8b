"""A router that ignores the image: all experts equally likely, or as likely as their clusters."""

from typing import Literal

from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.models import PriorRouterSettings
from hpcddm.models.training_free import PriorRouter


class UniformRouterSettings(PriorRouterSettings):
    """Prior of the clusters: uniform ('equal'), by size ('natural'), or by size within the class ('class')."""

    prior: Literal["equal", "natural", "class"] = "equal"

    def parameters(self, data: NetworkData, num_clusters: int) -> int:
        return self.priors(data) * num_clusters


class UniformRouter(PriorRouter[UniformRouterSettings]):
    """The prior alone."""
