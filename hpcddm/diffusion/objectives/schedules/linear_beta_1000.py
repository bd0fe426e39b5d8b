"""DDPM's table of 1000 levels (arXiv 2006.11239, sec. 4).

Level i = 0 ... 999 is at t = i / 1000, so that 1000 t is the time step which public checkpoints embed.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from hpcddm.config.objectives import ScheduleSettings
from hpcddm.diffusion.objectives.conversions import Level
from hpcddm.diffusion.objectives.schedules.base import Schedule

LEVELS = 1000


class LinearBeta1000Settings(ScheduleSettings):
    """Variant without settings: beta goes from 1e-4 to 0.02, as in the public checkpoints."""


class LinearBeta1000(Schedule[LinearBeta1000Settings]):
    """Path with alpha_i^2 = product of 1 - beta_j over j <= i; between two levels log-SNR is linear in t.

    A network is evaluated between levels, too: its embedding of 1000 t is smooth, whereas rounding to the nearest level
    would put its log-SNR off by up to 0.39 between levels 0 and 1, and by up to 0.05 at level 15. Log-SNR goes from
    9.2 to -10.1, on the linear path from t = 0.0099 to 0.9937.
    """

    range = (0.0, (LEVELS - 1) / LEVELS)

    def __init__(self, settings: LinearBeta1000Settings):
        super().__init__(settings)
        kept = (1 - torch.linspace(1e-4, 0.02, LEVELS, dtype=torch.float64)).cumprod(0)
        self._log_snr = (kept / (1 - kept)).log()

    def level(self, t: Float[Tensor, " n"]) -> Level:
        log_snr, slope = self._at(t)
        alpha, sigma = torch.sigmoid(log_snr).sqrt(), torch.sigmoid(-log_snr).sqrt()
        derivatives = alpha * sigma**2 / 2 * slope, -sigma * alpha**2 / 2 * slope
        return Level(*(value.to(t.dtype) for value in (alpha, sigma, *derivatives)))

    def log_snr(self, t: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Interpolate the table's log-SNR linearly between levels."""
        return self._at(t)[0].to(t.dtype)

    def time_at(self, log_snr: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        table = self._table(log_snr.device)
        clamped = log_snr.double().clamp(table[-1], table[0])
        below = (torch.searchsorted(-table, -clamped, right=True) - 1).clamp(0, LEVELS - 2)
        fraction = (clamped - table[below]) / (table[below + 1] - table[below])
        return ((below + fraction) / LEVELS).to(log_snr.dtype)

    def _at(self, t: Float[Tensor, " n"]) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"]]:
        """Interpolate log-SNR and return it with its derivative by t."""
        table, place = self._table(t.device), (t.double() * LEVELS).clamp(0, LEVELS - 1)
        below = place.floor().clamp(max=LEVELS - 2).long()
        step = table[below + 1] - table[below]
        return table[below] + (place - below) * step, LEVELS * step

    def _table(self, device: torch.device) -> Float64[Tensor, " levels"]:
        # Kept on the device of its last use: a copy to the GPU in every call would wait for it.
        self._log_snr = self._log_snr.to(device)
        return self._log_snr
