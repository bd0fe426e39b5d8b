"""Settings that all weightings of the loss have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class WeightingSettings(VariantSettings):
    """Settings of a weighting of the loss."""

    room: ClassVar[str] = "objectives/weightings"
