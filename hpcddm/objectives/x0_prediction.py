"""The network predicts the image (arXiv 2202.00512, sec. 4)."""

from hpcddm.objectives import base
from hpcddm.objectives.settings import ObjectiveSettings
from hpcddm.schema import default_variant, variant


class Settings(ObjectiveSettings):
    """The path is the cosine one unless another schedule is named."""

    schedule: variant("objectives/schedules") = default_variant("cosine")


class Objective(base.Objective):
    """At t = 0 the image is all that there is, and predicting it says nothing about the noise."""

    prediction_type = "x0"
    blind_at = 0.0
