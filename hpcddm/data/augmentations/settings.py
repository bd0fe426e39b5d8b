"""Settings that augmentations have in common in an experiment's YAML."""

from typing import Any, ClassVar

from hpcddm.schema import VariantSettings


class AugmentationSettings(VariantSettings):
    """Random change of the images of a training, drawn anew at every visit of a sample."""

    room: ClassVar[str] = "data/augmentations"

    def source_side(self, side: int) -> int:
        """Return the side of the squares that it would like to get for squares of `side`, which it makes of any."""
        return side

    def check(self, experiment: Any) -> None:
        """Refuse the same one twice: both would draw the same numbers."""
        if [own.name for own in experiment.data.augmentations].count(self.name) > 1:
            raise ValueError(f"{self.name} stands there twice; name it once")
