"""Settings that text encoders have in common in an experiment's YAML."""

from abc import abstractmethod
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
