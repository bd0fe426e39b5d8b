"""SNR-matched: a network is asked at the native time whose log-SNR is that of the state, and about the state rescaled.

With native tau of the same log-SNR as the linear path's t and y = (alpha + sigma) x, y at tau is x at t, and the
linear velocity eps - x0 follows from the prediction exactly. For the cosine path tau = (2 / pi) atan2(t, 1 - t), and
for epsilon-prediction on any path v = (eps - x) / (1 - t). The same mapping as in arXiv 2506.02221.
"""

from typing import Annotated, Any

import torch
from pydantic import Field

from hpcddm.ensemble.conversions.halves import one_posterior
from hpcddm.objectives.base import LINEAR, Objective
from hpcddm.objectives.conversions import Level, convert, floored, times
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Up to where a network is believed; all times are those of the linear path.

    `highest`: above it an epsilon network, whose errors grow as 1 / (1 - t), counts as not knowing the level; `lowest`:
    below it an x0 network, whose errors grow as 1 / t. Trained networks may want `highest` near 0.98, or `x0_clamp`: the
    estimated image is kept within [-x0_clamp, x0_clamp]. `skip_above`: above it epsilon networks are not asked at all
    while there are others.
    """

    lowest: Annotated[float, Field(gt=0, lt=0.5)] = 1e-3
    highest: Annotated[float, Field(gt=0.5, lt=1)] = 1 - 1e-3
    x0_clamp: Annotated[float, Field(gt=0)] | None = None
    skip_above: Annotated[float, Field(gt=0, lt=1)] | None = None
