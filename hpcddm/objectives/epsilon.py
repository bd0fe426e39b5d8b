"""The network predicts the noise (arXiv 2006.11239, eq. 14)."""

from hpcddm.objectives import base
from hpcddm.objectives.settings import ObjectiveSettings
from hpcddm.schema import default_variant, variant


class Settings(ObjectiveSettings):
    """The path is the cosine one unless another schedule is named."""

    schedule: variant("objectives/schedules") = default_variant("cosine")


class Objective(base.Objective):
    """At t = 1 the noise is all that there is, and predicting it says nothing about the image."""

    prediction_type = "epsilon"
    blind_at = 1.0
