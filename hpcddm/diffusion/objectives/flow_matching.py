"""Flow matching: the network predicts the velocity of its path (arXiv 2501.05450, eq. 6; arXiv 2210.02747, sec. 4)."""

from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.diffusion.objectives.base import Objective


class Settings(ObjectiveSettings):
    """Settings with the linear schedule as default."""


class FlowMatching(Objective):
    """Prediction of the velocity dx_t/dt = alpha' x0 + sigma' eps; on the linear path eps - x0."""

    prediction_type = "path_velocity"
