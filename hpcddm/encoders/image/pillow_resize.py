"""Resizing of images bit for bit as by Pillow, on any device: what published preparations do."""

import math
from functools import cache

import numpy as np
import torch
from jaxtyping import Float32, Float64, UInt8
from torch import Tensor

BITS = 22
"""Pillow's weights are whole multiples of 2^-22."""
RADIUS = {"bilinear": 1.0, "bicubic": 2.0}


def resize(planes: UInt8[Tensor, "n c h w"], side: int, interpolation: str) -> Float32[Tensor, "n c s s"]:
    """Resize images to a square, with antialiasing and rounded to 0 ... 255, first their columns and then their rows.

    interpolation: 'bilinear' or 'bicubic'.
    """
    values = planes.double()
    for axis in (3, 2):
        weights = torch.from_numpy(_weights(values.shape[axis], side, interpolation)).to(values.device)
        # All products and sums are whole numbers below 2^53, so their order and the device change nothing.
        sums = values @ weights.T if axis == 3 else weights @ values
        values = ((sums + 2 ** (BITS - 1)) / 2**BITS).floor().clamp(0, 255)
    return values.float()


@cache
def _weights(length: int, side: int, interpolation: str) -> Float64[np.ndarray, "s l"]:
    """Return the weights of the old pixels in each new one, as whole multiples of 2^-22."""
    scale = length / side
    stretch, radius = max(scale, 1.0), RADIUS[interpolation]
    weights = np.zeros((side, length))
    for place in range(side):
        centre = (place + 0.5) * scale
        first = max(math.floor(centre - radius * stretch + 0.5), 0)
        last = min(math.floor(centre + radius * stretch + 0.5), length)
        distances = np.abs((np.arange(first, last) - centre + 0.5) / stretch)
        row = _bicubic(distances) if interpolation == "bicubic" else np.maximum(1 - distances, 0)
        row = row / sum(row.tolist()) * 2**BITS
        weights[place, first:last] = np.trunc(row + np.copysign(0.5, row))
    return weights


def _bicubic(distances: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    """Compute Keys' cubic kernel with a = -0.5."""
    a, x = -0.5, distances
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))
