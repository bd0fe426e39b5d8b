"""Settings that all objectives have in common in an experiment's YAML."""

from typing import Annotated, ClassVar

from pydantic import Field

from hpcddm.objectives.schedules.settings import ScheduleSettings
from hpcddm.objectives.times.settings import TimesSettings
from hpcddm.objectives.weightings.settings import WeightingSettings
from hpcddm.schema import VariantSettings, default_variant


class ObjectiveSettings(VariantSettings):
    """Path, distribution of training times and weighting of the loss.

    `shift` s lowers the log-SNR of every training time by 2 log s: for larger images (arXiv 2403.03206, sec. 5.3.2).
    """

    room: ClassVar[str] = "objectives"

    schedule: ScheduleSettings = default_variant("linear")
    times: TimesSettings = default_variant("uniform")
    shift: Annotated[float, Field(gt=0)] = 1.0
    weighting: WeightingSettings = default_variant("native")
