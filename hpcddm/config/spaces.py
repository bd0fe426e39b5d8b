"""Settings that all spaces have in common in an experiment's YAML."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from hpcddm.config.data_shapes import ImageShape, Shape
from hpcddm.config.schema import VariantSettings, settings_to_hash
from hpcddm.config.training import Training


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


Measured = Literal["measured"]
FLIP, SHARDS = "flip", "shards"
"""Augmentation whose latents can also be stored as a column; the reading mode that reads columns."""

SPACE_DIGEST = "space"
"""Part of the outputs of the unit latents/scale: the autoencoder that defines x, with its shift and scale."""


class SpaceSettings(VariantSettings):
    """Settings of the space in which denoisers, routers and samplers see images."""

    package: ClassVar[str] = "diffusion/spaces"
    bound: ClassVar[float | None] = None
    """Largest absolute value that x of an image can have; None if it has no bound."""
    reads_latents: ClassVar[bool] = False
    """True where trainings read a column of latents instead of images."""

    @abstractmethod
    def shape(self, channels: int, image_size: int) -> Shape:
        """Return the shape of x of images of so many channels and pixels a side."""

    @property
    def is_trained_in_run(self) -> bool:
        """True if a network that the run trains on its images defines x."""
        return False

    @property
    def defining_settings(self) -> dict[str, Any]:
        """Settings that define x, and so distinguish the networks of one space from those of another."""
        return settings_to_hash(self)


class LatentSpaceSettings(SpaceSettings):
    """Settings of a space of latents, which are a column; x = (latents - shift) scale."""

    reads_latents: ClassVar[bool] = True

    autoencoder: AutoencoderSettings
    training: Training | None = None
    """Training of an autoencoder that the run trains; refused for the others."""
    shift: Measured | float | list[float] = "measured"
    scale: Measured | float | list[float] = "measured"

    def shape(self, channels: int, image_size: int) -> Shape:
        return self.autoencoder.shape(channels, image_size)

    @field_validator("shift", "scale", mode="before")
    @classmethod
    def _is_measured_or_given(cls, value: object) -> object:
        """Say in one sentence what each of the three forms would say for itself."""
        numbers = value if isinstance(value, list) else [value]
        if value != "measured" and not all(isinstance(number, int | float) for number in numbers):
            raise PydanticCustomError("variant", "needs 'measured', a number, or a list with one for each channel")
        return value

    @property
    def defining_settings(self) -> dict[str, Any]:
        """Name and autoencoder; the digest of the unit latents/scale identifies its weights, shift and scale."""
        own = {key: value for key, value in settings_to_hash(self.autoencoder).items() if key != "weights"}
        return {"name": self.name, "autoencoder": own}

    @property
    def is_trained_in_run(self) -> bool:
        return self.autoencoder.is_trained

    @property
    def is_measured(self) -> bool:
        """True where shift or scale come from the latents themselves."""
        return "measured" in (self.shift, self.scale)

    def check(self, experiment: Any) -> None:
        """Raise ValueError for settings of images that no training reads, and numbers that do not fit the channels."""
        data, latents = experiment.data, self.shape(experiment.data.channels, experiment.data.image_size)
        if self.autoencoder.is_trained and self.training is None:
            raise ValueError(f"training: this key is needed: {self.autoencoder.name} is trained")
        if self.training is not None and self.training.extra_weights_keys:
            raise ValueError(
                f"training.{self.training.extra_weights_keys[0]}: nothing reads them: it encodes as it ended"
            )
        if self.training is not None and not self.autoencoder.is_trained:
            raise ValueError(f"training: {self.autoencoder.name} is not trained; remove it")
        for key, values in (("shift", self.shift), ("scale", self.scale)):
            numbers = values if isinstance(values, list) else [values]
            if key == "scale" and any(isinstance(number, float) and number <= 0 for number in numbers):
                raise ValueError(f"scale: {values} is not positive")
            if isinstance(values, list) and len(values) != latents.channels:
                raise ValueError(f"{key}: {len(values)} numbers for the {latents.channels} channels of the latents")
        others = [own.name for own in data.augmentations if own.name != FLIP]
        if others:
            raise ValueError(
                f"latents are encoded once, so {others[0]} of data.augmentations cannot be; only {FLIP} can"
            )
        if data.read_from.name != SHARDS:
            raise ValueError(
                f"trainings read latents and no images; remove data.read_from, which is {data.read_from.name}"
            )
