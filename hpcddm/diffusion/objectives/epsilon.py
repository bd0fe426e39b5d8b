"""Epsilon prediction: the network predicts the noise (arXiv 2006.11239, eq. 14)."""

from hpcddm.config.objectives import ObjectiveSettings, ScheduleSettings
from hpcddm.config.schema import default_variant
from hpcddm.diffusion.objectives.base import Objective


class EpsilonSettings(ObjectiveSettings):
    """Settings with the cosine schedule as default."""

    schedule: ScheduleSettings = default_variant("cosine")


class Epsilon(Objective):
    """Prediction of eps; at t = 1 the state is eps, and its prediction is independent of the image."""

    prediction_type = "epsilon"
    blind_at = 1.0
