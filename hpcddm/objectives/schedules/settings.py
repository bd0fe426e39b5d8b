"""Settings that all schedules have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class ScheduleSettings(VariantSettings):
    """Settings of the path from data to noise."""

    room: ClassVar[str] = "objectives/schedules"

    @property
    def described(self) -> str:
        """Name of the path, with its settings where it has some."""
        settings = ", ".join(f"{key} {value}" for key, value in self.model_dump(exclude={"name"}).items())
        return self.name + (f" ({settings})" if settings else "")
