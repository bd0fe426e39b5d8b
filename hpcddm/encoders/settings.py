"""Settings that encoders have in common in an experiment's YAML: those of images, and those of text."""

from abc import abstractmethod
from typing import Annotated, ClassVar

from pydantic import Field

from hpcddm.data.settings import ImageShape
from hpcddm.schema import Positive, StrictModel, VariantSettings


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


class TextSettings(StrictModel):
    """A sentence for every class, as models with `condition: text` see it."""

    encoder: TextEncoderSettings
    prompts: Annotated[list[str], Field(min_length=1)]
    tokens: Positive = 24
    """Number of token states of a prompt."""
