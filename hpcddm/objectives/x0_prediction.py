"""x0-prediction: the network predicts the image (arXiv 2202.00512, sec. 4)."""

from hpcddm.objectives.base import Objective
from hpcddm.objectives.schedules.settings import ScheduleSettings
from hpcddm.objectives.settings import ObjectiveSettings
from hpcddm.schema import default_variant


class Settings(ObjectiveSettings):
    """Settings with the cosine schedule as default."""

    schedule: ScheduleSettings = default_variant("cosine")


class X0Prediction(Objective):
    """Prediction of x0; at t = 0 the state is x0, and its prediction is independent of the noise."""

    prediction_type = "x0"
    blind_at = 0.0
