"""Settings that all schedules have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class ScheduleSettings(VariantSettings):
    """Settings of the path from data to noise."""

    room: ClassVar[str] = "objectives/schedules"
