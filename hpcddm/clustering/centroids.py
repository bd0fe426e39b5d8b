"""Nearest centroids of points, the same on every machine: what float32 leaves open is decided in float64."""

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64

UNIT_ROUNDOFF = 2.0**-24


class Centroids:
    """Centroids, and how near points are: by squared distance, plus the centroid's price where there are prices."""

    def __init__(self, centroids: Float[np.ndarray, "m d"], prices: Float[np.ndarray, " m"] | None = None) -> None:
        exact = centroids.astype(np.float64)
        offsets = np.square(exact).sum(1)
        self._exact = torch.from_numpy(np.ascontiguousarray(exact.T))
        self._offsets = 0.5 * (offsets if prices is None else offsets + prices)
        self._columns = torch.from_numpy(np.ascontiguousarray(centroids.T, dtype=np.float32))
        self._rounded_offsets = torch.from_numpy(self._offsets.astype(np.float32))
        # Bounds of the rounding errors of a closeness in float32, per length of the point and beside it.
        self._error_per_length = (centroids.shape[1] + 4) * UNIT_ROUNDOFF * float(np.sqrt(offsets.max()))
        self._error = 4 * UNIT_ROUNDOFF * float(np.abs(self._offsets).max())

    def nearest(self, points: Float32[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        """Return the index of every point's nearest centroid; points: a block, whose rows may be any."""
        given = torch.from_numpy(points)
        rounded = torch.addmm(self._rounded_offsets, given, self._columns, beta=-1).numpy()
        nearest = rounded.argmax(1)
        rows = np.arange(len(points))
        best = rounded[rows, nearest]
        rounded[rows, nearest] = -np.inf
        margins = best - torch.amax(torch.from_numpy(rounded), 1).numpy()
        errors = self._error_per_length * torch.linalg.vector_norm(given, dim=1).numpy() + self._error
        open_rows = np.flatnonzero(margins <= 2 * errors)
        nearest[open_rows] = self.closeness(points[open_rows]).argmax(1)
        return nearest

    def closeness(self, points: Float32[np.ndarray, "n d"]) -> Float64[np.ndarray, "n m"]:
        """Return half of what every squared distance, plus price, is less than the point's squared length."""
        # Not by numpy, whose product has threads of its own beside those that work on other blocks.
        return torch.mm(torch.from_numpy(points.astype(np.float64)), self._exact).numpy() - self._offsets
