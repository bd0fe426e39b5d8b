"""The layout of SiT's checkpoints (arXiv 2401.08740, github.com/willisma/SiT): tensors as DiT's, another convention.

SiT runs from noise at s = 0 to data at s = 1, predicts data - noise and embeds s itself; here data are at t = 0, the
velocity is noise - data and 1000 t is embedded. So the last layer changes its sign, and the first layer that sees the
time is refitted such that it sees 1 - t: a quarter of the waves that it knew are among ours, the others nearly flat.
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from hpcddm.config.models import FREQUENCIES, LayoutSettings
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.errors import UserError
from hpcddm.models.checkpoints.base import CheckpointContent, CheckpointInfo
from hpcddm.models.checkpoints.original_dit import ASSUMED_TO_BE_DIT, OriginalDiT, has_tensors, is_of_sit
from hpcddm.models.layers import angles

PATH, PREDICTION = "path_type", "prediction"
KNOWN = {PATH: "Linear", PREDICTION: "velocity"}
"""Arguments of SiT's train.py, which DiT's does not have, and the values that can be read: its defaults."""
FIT_TIMES, MIN_SINGULAR_VALUE = 1001, 1e-7
"""Number of times over which the waves are fitted, and the relative cut-off of singular values."""
TIME, HEAD = "trunk.embed_time.0", "head"


class SiTSettings(LayoutSettings):
    """Variant without settings."""


class SiT(OriginalDiT):
    """Tensors of a DiT in another convention of time and sign."""

    code: ClassVar[str] = "SiT"
    """Name of the public code."""

    def recognises(self, stored: CheckpointContent) -> bool:
        """Tell if SiT's train.py wrote this file; the tensors alone are those of a DiT."""
        return has_tensors(stored.tensors) and is_of_sit(stored.arguments)

    def load(self, stored: CheckpointContent, like: Any) -> tuple[dict[str, Tensor], CheckpointInfo]:
        """Convert the tensors to our names and convention and describe their network.

        Raises `UserError` also where the arguments name another path or another prediction.
        """
        for key, value in KNOWN.items():
            if stored.arguments.get(key, value) != value:
                raise UserError(f"{stored.path}: trained with {key} {stored.arguments[key]}; only {value} can be read")
        tensors, info = super().load(stored, like)
        for kind in ("weight", "bias"):
            tensors[f"{HEAD}.{kind}"] = -tensors[f"{HEAD}.{kind}"]
        weight, bias = tensors[f"{TIME}.weight"].double(), tensors[f"{TIME}.bias"].double()
        waves, constant = _reversed_waves()
        tensors[f"{TIME}.weight"] = (weight @ waves).to(tensors[f"{TIME}.weight"].dtype)
        tensors[f"{TIME}.bias"] = (bias + weight @ constant).to(tensors[f"{TIME}.bias"].dtype)
        flow = ObjectiveSettings.model_validate({"name": "flow_matching"})
        notes = tuple(note for note in info.notes if note != ASSUMED_TO_BE_DIT)
        return tensors, replace(info, objective=flow, notes=(*notes, *self._assumed(stored)))

    def _assumed(self, stored: CheckpointContent) -> tuple[str, ...]:
        if PATH in stored.arguments:
            return ()
        taken = "taken to be the linear path and the velocity, as the published ones"
        return (f"nothing says how {self.code} was trained: {taken}",)


def _reversed_waves() -> tuple[Tensor, Tensor]:
    """Fit SiT's waves of 1 - t by a linear map (256, 256) of ours of t, and a constant (256,); float64."""
    t = torch.linspace(0, 1, FIT_TIMES, dtype=torch.float64)
    ours = torch.cat([_waves(1000 * t), torch.ones(FIT_TIMES, 1, dtype=torch.float64)], dim=1)
    # Faster waves than SiT's fastest would only fit rounding errors.
    slow = torch.arange(FREQUENCIES + 1) % (FREQUENCIES // 2) >= FREQUENCIES // 2 - FREQUENCIES // 8
    slow[-1] = True
    coefficients = torch.zeros(FREQUENCIES + 1, FREQUENCIES, dtype=torch.float64)
    coefficients[slow] = torch.linalg.pinv(ours[:, slow], rtol=MIN_SINGULAR_VALUE) @ _waves(1 - t)
    return coefficients[:-1].T, coefficients[-1]


def _waves(position: Tensor) -> Tensor:
    """Compute cosines, then sines of positions (N,): (N, 256) float64."""
    angle = angles(position, FREQUENCIES // 2)
    return torch.cat([angle.cos(), angle.sin()], dim=1)
