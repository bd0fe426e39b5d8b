"""V-prediction: the network predicts v = alpha eps - sigma x0 (arXiv 2202.00512, sec. 4)."""

from hpcddm.config.objectives import ObjectiveSettings, ScheduleSettings
from hpcddm.config.schema import default_variant
from hpcddm.diffusion.objectives.base import Objective


class VPredictionSettings(ObjectiveSettings):
    """Settings with the cosine schedule as default."""

    schedule: ScheduleSettings = default_variant("cosine")


class VPrediction(Objective):
    """Prediction of v, which determines image and noise at every level: alpha^2 + sigma^2 is never 0."""

    prediction_type = "v"
