"""Flow matching: the network predicts the velocity of its path (arXiv 2501.05450, eq. 6; arXiv 2210.02747, sec. 4)."""

from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.diffusion.objectives.base import Objective


class FlowMatchingSettings(ObjectiveSettings):
    """Settings with the linear schedule as default."""


class FlowMatching(Objective):
    """Prediction of the velocity dx_t/dt = alpha' x0 + sigma' eps; on the linear path eps - x0.

    Examples:
        >>> import torch
        >>> objective = FlowMatching(FlowMatchingSettings(name="flow_matching"))
        >>> x0, noise, t = torch.zeros(2, 3, 8, 8), torch.ones(2, 3, 8, 8), torch.tensor([0.25, 0.5])
        >>> objective.perturb(x0, noise, t)[:, 0, 0, 0].tolist()
        [0.25, 0.5]
        >>> objective.loss(torch.zeros_like(x0), x0, noise, t).tolist()
        [1.0, 1.0]
    """

    prediction_type = "path_velocity"
