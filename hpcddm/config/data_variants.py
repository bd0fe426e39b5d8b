"""Bases of the settings under `data` that select a variant: the order of samples, and the reading of their images."""

from itertools import islice
from typing import Any, ClassVar

from hpcddm.config.schema import VariantSettings
from hpcddm.errors import require


class OrderSettings(VariantSettings):
    """Order in which a training visits its samples."""

    package: ClassVar[str] = "data/orders"


class TransformSettings(VariantSettings):
    """Transform that turns a picture of any size into a square of `data.image_size`."""

    package: ClassVar[str] = "data/transforms"


class ReadingSettings(VariantSettings):
    """Method by which trainings read their images; all methods give the same pixels."""

    package: ClassVar[str] = "data/readings"
    reads_copies: ClassVar[bool] = False
    """True if an expert reads the tars that the stage copy_lists makes from its list."""

    @property
    def drops_exif(self) -> bool:
        """True if copies omit the EXIF metadata of their pictures."""
        return False


class AugmentationSettings(VariantSettings):
    """Random change of the training images, drawn again each time a sample is used."""

    package: ClassVar[str] = "data/augmentations"

    def source_side(self, side: int) -> int:
        """Return the preferred side of the input squares; the augmentation accepts inputs of any size.

        Args:
            side: Side of the output squares, in pixels.
        """
        return side

    def check(self, experiment: Any) -> None:
        """Raise ValueError for an augmentation that is listed twice: both would draw the same random numbers."""
        same = (item for item in experiment.data.augmentations if item.name == self.name)
        # Not counted to the end: every entry of a long list is checked.
        require(len(list(islice(same, 2))) <= 1, f"{self.name} is listed twice; list it once", ValueError)
