"""Settings that encoders have in common in an experiment's YAML: those of images, and those of text."""

from abc import abstractmethod
from typing import ClassVar

from hpcddm.data.settings import ImageShape
from hpcddm.schema import VariantSettings


class ImageEncoderSettings(VariantSettings):
    """Settings of an encoder from images to features."""

    room: ClassVar[str] = "encoders"
    uses_gpu: ClassVar[bool] = True
    """False for an encoder that computes next to nothing."""

    @abstractmethod
    def dimensions(self, data: ImageShape) -> int:
        """Return the number of features per image."""


class TextEncoderSettings(VariantSettings):
    """Settings of an encoder from sentences to token states."""

    room: ClassVar[str] = "encoders"

    @abstractmethod
    def dimensions(self) -> int:
        """Return the number of values of one token's state."""
