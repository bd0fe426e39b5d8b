"""Flow matching whose training takes its time while a file is there: it lasts on any machine, and can end soon."""

import os
import time

from jaxtyping import Float
from torch import Tensor

from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.diffusion.objectives.flow_matching import FlowMatching

STEP_SECONDS = 0.4
"""Seconds by which every step takes longer: 500 steps of 16 images outlast a storm on the fastest machine."""


class Settings(ObjectiveSettings):
    """Settings of flow matching."""


class Paced(FlowMatching):
    """Flow matching that waits before every step, as long as there is the file that HPCDDM_TEST_PACE names."""

    def training_times(self, uniform: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Wait, and compute the training times as ever."""
        if os.path.exists(os.environ.get("HPCDDM_TEST_PACE", "")):
            time.sleep(STEP_SECONDS)
        return super().training_times(uniform)
