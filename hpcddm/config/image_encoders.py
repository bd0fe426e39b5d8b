"""Settings that encoders of samples have in common in an experiment's YAML, and those of images alone."""

import re
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

    @abstractmethod
    def dimensions(self, data: ImageShape) -> int:
        """Return the number of features per sample."""


class ImageEncoderSettings(SampleEncoderSettings):
    """Settings of an encoder from images alone, which need not be those of samples."""

    package: ClassVar[str] = "encoders/image"
    has_head: ClassVar[bool] = False
    """True for a network that also classifies images: its encoder has `encode_with_logits`."""
    has_text: ClassVar[bool] = False
    """True for a network that maps texts to features, too: its encoder has `text_features`."""

    def evaluator_label(self) -> str:
        """Return what keys of figures call the encoder: network, size and preparation, in a-z, 0-9, '.' and '-'.

        Raises `UserError` where weights are missing whose JSON describes the network.
        """
        return label(self.name)


def figure_label(encoder: ImageEncoderSettings) -> str:
    """Return what keys of figures call an encoder, as the run has stored it or as its weights say.

    Raises `UserError` where weights are missing and the run has stored no label.
    """
    weights = getattr(encoder, "weights", None)
    return getattr(weights, "label", None) or encoder.evaluator_label()


def label(*parts: object) -> str:
    """Join the parts of a label, in the letters that keys have; those that are empty or None are left out."""
    joined = "-".join(str(part) for part in parts if part not in (None, ""))
    return re.sub("[^a-z0-9.]+", "-", joined.lower()).strip("-")


def preparation_label(resized: int, side: int, interpolation: str) -> str:
    """Name a resize with antialiasing to a square of side `resized`, and the cut of the square in its middle."""
    return label(resized, f"crop-{side}" if side != resized else "", interpolation, "aa")
