"""A router that never looks at the image: all experts equally likely, or as likely as their clusters."""

from typing import Any, ClassVar, Literal

from hpcddm.models.training_free import TrainingFree
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Nothing ('equal'), the clusters' sizes ('natural'), or their sizes within the class ('class')."""

    role: ClassVar[str] = "router"
    trained: ClassVar[bool] = False

    prior: Literal["equal", "natural", "class"] = "equal"

    def parameters(self, data: Any, num_outputs: int) -> int:
        """How many numbers it stores."""
        return (data.num_classes + 1) * num_outputs


def build(settings: Settings, data: Any, num_outputs: int | None = None) -> TrainingFree:
    """The router of `num_outputs` clusters before `fit`; `data` has num_classes."""
    return TrainingFree(settings, data, num_outputs)
