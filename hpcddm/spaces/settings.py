"""Settings that all spaces have in common in an experiment's YAML."""

from abc import abstractmethod
from typing import ClassVar

from hpcddm.data.settings import Shape
from hpcddm.schema import VariantSettings


class SpaceSettings(VariantSettings):
    """Settings of the space in which denoisers, routers and samplers see images."""

    room: ClassVar[str] = "spaces"
    bound: ClassVar[float | None] = None
    """Largest absolute value that x of an image can have; None where there is none."""

    @abstractmethod
    def shape(self, channels: int, image_size: int) -> Shape:
        """Return the shape of x of images of so many channels and pixels a side."""
