"""Settings that all objectives have in common in an experiment's YAML."""

from typing import Annotated, ClassVar

from pydantic import Field

from hpcddm.config.schema import VariantSettings, default_variant


class ScheduleSettings(VariantSettings):
    """Settings of the path from data to noise."""

    package: ClassVar[str] = "diffusion/objectives/schedules"

    @property
    def description(self) -> str:
        """Name of the path, with its settings if it has any."""
        settings = ", ".join(f"{key} {value}" for key, value in self.model_dump(exclude={"name"}).items())
        return self.name + (f" ({settings})" if settings else "")


class WeightingSettings(VariantSettings):
    """Settings of a weighting of the loss."""

    package: ClassVar[str] = "diffusion/objectives/weightings"


class TimesSettings(VariantSettings):
    """Settings of a distribution of training times."""

    package: ClassVar[str] = "diffusion/objectives/times"


class ObjectiveSettings(VariantSettings):
    """Path, distribution of training times and weighting of the loss.

    `shift` s lowers the log-SNR of every training time by 2 log s: for larger images (arXiv 2403.03206, sec. 5.3.2).
    """

    package: ClassVar[str] = "diffusion/objectives"

    schedule: ScheduleSettings = default_variant("linear")
    times: TimesSettings = default_variant("uniform")
    shift: Annotated[float, Field(gt=0)] = 1.0
    weighting: WeightingSettings = default_variant("native")
