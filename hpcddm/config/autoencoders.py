"""Settings that autoencoders have in common in an experiment's YAML."""

from abc import abstractmethod
from typing import ClassVar

from hpcddm.config.data_shapes import ImageShape, Shape
from hpcddm.config.schema import VariantSettings


class AutoencoderSettings(VariantSettings):
    """Settings of an autoencoder from images to latents and back."""

    package: ClassVar[str] = "encoders/autoencoder"
    is_trained: ClassVar[bool] = False
    """True for one that the run trains, on its own images."""
    moments: ClassVar[int] = 2
    """Number of maps per image: 2, mean and log-variance, or 1, the latents themselves."""

    @abstractmethod
    def shape(self, channels: int, image_size: int) -> Shape:
        """Return the shape of the latents of images of so many channels and pixels a side.

        Raises ValueError for images that it cannot encode.
        """


class TrainedAutoencoderSettings(AutoencoderSettings):
    """Settings of an autoencoder that the run trains."""

    package: ClassVar[str] = "encoders/autoencoder"
    is_trained: ClassVar[bool] = True

    @abstractmethod
    def parameters(self, images: ImageShape) -> int:
        """Count the parameters of its network."""
