"""Settings of the condition of an experiment's images and of text encoders; its form and shape build networks."""

from abc import abstractmethod
from enum import StrEnum
from typing import ClassVar

from hpcddm.config.schema import VariantSettings


class TextEncoderSettings(VariantSettings):
    """Settings of an encoder from sentences to token states."""

    package: ClassVar[str] = "encoders/text"
    uses_gpu: ClassVar[bool] = True
    """False for an encoder that computes next to nothing."""

    @abstractmethod
    def dimensions(self) -> int:
        """Return the number of values of one token's state."""


class ConditionForm(StrEnum):
    """Form of a condition, by which networks embed it."""

    NONE = "none"
    """No condition; networks do not look at the tensor."""
    CLASS = "class"
    """Class ids (N,); the id `num_classes` is the null class."""
    TEXT = "text"
    """States of tokens (N, L, D), rows of zeros being padding."""


class ConditionSettings(VariantSettings):
    """Settings of the condition of experts, router and student, which every image has."""

    package: ClassVar[str] = "diffusion/conditions"
    form: ClassVar[ConditionForm]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image's condition: (L, D) for states of tokens, () for the others."""
        return ()

    @property
    def text_encoder(self) -> TextEncoderSettings | None:
        """Settings of the encoder that makes the states; None without one."""
        return None

    @property
    def encoder_name(self) -> str | None:
        """Name of the encoder that makes the states; None without one."""
        return None if self.text_encoder is None else self.text_encoder.name

    @property
    def reads_captions(self) -> bool:
        """True where an image's caption says its condition, False where its class does or nothing."""
        return False

    @property
    def numbers_classes(self) -> bool:
        """True where a key lists something of every class in the order of their numbers."""
        return False

    @property
    def reads_column(self) -> bool:
        """True where the states of captions are a column, which the stage encode_captions makes."""
        return False

    @property
    def encodes_in_steps(self) -> bool:
        """True where captions are encoded in every step of a training, on its device."""
        return False
