"""Settings that all distributions of training times have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class TimesSettings(VariantSettings):
    """Settings of a distribution of training times."""

    room: ClassVar[str] = "objectives/times"
