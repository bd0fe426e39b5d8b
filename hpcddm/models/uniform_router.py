"""A router that ignores the image: all experts equally likely, or as likely as their clusters."""

from typing import Any, ClassVar, Literal

from hpcddm.models.training_free import TrainingFree
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Prior of the clusters: uniform ('equal'), by size ('natural'), or by size within the class ('class')."""

    role: ClassVar[str] = "router"
    trained: ClassVar[bool] = False

    prior: Literal["equal", "natural", "class"] = "equal"

    def parameters(self, data: Any, num_outputs: int) -> int:
        """Count the stored numbers."""
        return (data.num_classes + 1) * num_outputs


def build(settings: Settings, data: Any, num_outputs: int | None = None) -> TrainingFree:
    """Build the router of `num_outputs` clusters, unfitted; `data` has num_classes."""
    return TrainingFree(settings, data, num_outputs)
