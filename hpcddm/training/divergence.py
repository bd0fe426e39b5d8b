"""Signs that a training has diverged, the same for all networks; such a network must never be measured."""

import numpy as np

from hpcddm.config.training import Training
from hpcddm.errors import UserError

MAX_LOSS_GROWTH = 10
"""Largest loss in the last step, in units of that in the first, or of 1 where that is less, as from given weights."""
MIN_SPREAD = 1e-6
"""Least difference between the outputs for several images, in units of the largest output."""


def diverged_error(key: str, reason: str, training: Training) -> UserError:
    """Return the error about a unit whose training has diverged."""
    return UserError(f"{key}: the training has diverged: {reason}; lower its learning_rate, {training.learning_rate:g}")


def varies(outputs: np.ndarray) -> bool:
    """Tell if a network answers to its input: whether outputs (..., N, K) for N > 1 images differ among them."""
    finite = np.nan_to_num(outputs.astype(np.float64), posinf=0, neginf=0)
    return bool(outputs.shape[-2] < 2 or np.ptp(finite, axis=-2).max() > MIN_SPREAD * np.abs(finite).max())
