"""x0-prediction: the network predicts the image (arXiv 2202.00512, sec. 4)."""

from hpcddm.config.objectives import ObjectiveSettings, ScheduleSettings
from hpcddm.config.schema import default_variant
from hpcddm.diffusion.objectives.base import Objective


class X0PredictionSettings(ObjectiveSettings):
    """Settings with the cosine schedule as default."""

    schedule: ScheduleSettings = default_variant("cosine")


class X0Prediction(Objective):
    """Prediction of x0; at t = 0 the state is x0, and its prediction is independent of the noise."""

    prediction_type = "x0"
    blind_at = 0.0
