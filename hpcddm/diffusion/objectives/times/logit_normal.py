"""Logit-normal times: more often in the middle of the schedule's range than at its ends (arXiv 2403.03206, eq. 19)."""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from hpcddm.config.objectives import TimesSettings
from hpcddm.diffusion.objectives.times.base import TimesDistribution


class LogitNormalSettings(TimesSettings):
    """Mean and standard deviation of log(t / (1 - t)); a positive mean prefers noise."""

    mean: float = 0.0
    std: Annotated[float, Field(gt=0)] = 1.0


class LogitNormal(TimesDistribution[LogitNormalSettings]):
    """The schedule's range times the logistic function of a normal variable."""

    def training_times(self, uniform: Float[Tensor, " n"], lowest: float, highest: float) -> Float[Tensor, " n"]:
        normal = torch.special.ndtri(uniform)
        return lowest + (highest - lowest) * torch.sigmoid(self.settings.mean + self.settings.std * normal)
