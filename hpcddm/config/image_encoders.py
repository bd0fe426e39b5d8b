"""Settings that encoders of samples have in common in an experiment's YAML, and those of images alone."""

from abc import abstractmethod
from typing import ClassVar

from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.schema import VariantSettings


class PerceptualSettings(VariantSettings):
    """Settings of a distance of images as people see it."""

    package: ClassVar[str] = "encoders/perceptual"


class SampleEncoderSettings(VariantSettings):
    """Settings of an encoder from samples to the features by which they are clustered."""

    package: ClassVar[str] = "encoders/image"
    uses_gpu: ClassVar[bool] = True
    """False for an encoder that computes next to nothing."""
    reads_images: ClassVar[bool] = True
    """False for an encoder that sees no picture."""

    @property
    def needs_gpu(self) -> bool:
        """True for what must not run on a CPU."""
        return False

    @abstractmethod
    def dimensions(self, data: ImageShape) -> int:
        """Return the number of features per sample."""


class ImageEncoderSettings(SampleEncoderSettings):
    """Settings of an encoder from images alone, which need not be those of samples."""

    package: ClassVar[str] = "encoders/image"
