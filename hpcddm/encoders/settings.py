"""Settings that encoders have in common in an experiment's YAML: those of samples, of images, and of text."""

from abc import abstractmethod
from typing import ClassVar

from hpcddm.data.settings import ImageShape
from hpcddm.schema import VariantSettings


class SampleEncoderSettings(VariantSettings):
    """Settings of an encoder from samples to the features by which they are clustered."""

    room: ClassVar[str] = "encoders"
    uses_gpu: ClassVar[bool] = True
    """False for an encoder that computes next to nothing."""
    reads_images: ClassVar[bool] = True
    """False for an encoder that sees no picture."""

    @abstractmethod
    def dimensions(self, data: ImageShape) -> int:
        """Return the number of features per sample."""


class ImageEncoderSettings(SampleEncoderSettings):
    """Settings of an encoder from images alone, which need not be those of samples."""

    room: ClassVar[str] = "encoders"


class TextEncoderSettings(VariantSettings):
    """Settings of an encoder from sentences to token states."""

    room: ClassVar[str] = "encoders"

    @abstractmethod
    def dimensions(self) -> int:
        """Return the number of values of one token's state."""
