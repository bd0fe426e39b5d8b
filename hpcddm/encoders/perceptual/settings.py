"""Settings that perceptual distances have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class PerceptualSettings(VariantSettings):
    """Settings of a distance of images as people see it."""

    room: ClassVar[str] = "encoders/perceptual"
