"""Settings that all objectives have in common in an experiment's YAML."""

from typing import Annotated

from pydantic import Field

from hpcddm.objectives.schedules.settings import ScheduleSettings
from hpcddm.schema import VariantSettings, default_variant, variant


class ObjectiveSettings(VariantSettings):
    """Path, distribution of training times and weighting of the loss.

    `shift` s lowers the log-SNR of every training time by 2 log s: for larger images (arXiv 2403.03206, sec. 5.3.2).
    """

    schedule: ScheduleSettings = default_variant("linear")
    times: variant("objectives/times") = default_variant("uniform")
    shift: Annotated[float, Field(gt=0)] = 1.0
    weighting: variant("objectives/weightings") = default_variant("native")
