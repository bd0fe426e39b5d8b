"""Settings that all conversions have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class ConversionSettings(VariantSettings):
    """Settings of a conversion of predictions to velocities of the linear path."""

    room: ClassVar[str] = "ensemble/conversions"
