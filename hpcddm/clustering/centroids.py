"""Nearest centroids of points, identical on every machine: float64 decides where float32 is not precise enough."""

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64

UNIT_ROUNDOFF = 2.0**-24


class Centroids:
    """Centroids and squared distances of points from them; each centroid may add a penalty to its distances.

    Args:
        centroids: (M, D).
        penalties: Penalty of each centroid, (M,); None for none.

    Examples:
        >>> centroids = Centroids(np.array([[0.0, 0.0], [4.0, 0.0]]))
        >>> centroids.nearest(np.array([[1.0, 0.0], [3.0, 1.0]], np.float32))
        array([0, 1])
    """

    def __init__(self, centroids: Float[np.ndarray, "m d"], penalties: Float[np.ndarray, " m"] | None = None) -> None:
        exact = centroids.astype(np.float64)
        offsets = np.square(exact).sum(1)
        self._exact = torch.from_numpy(np.ascontiguousarray(exact.T))
        self._offsets = 0.5 * (offsets if penalties is None else offsets + penalties)
        self._columns = torch.from_numpy(np.ascontiguousarray(centroids.T, dtype=np.float32))
        self._rounded_offsets = torch.from_numpy(self._offsets.astype(np.float32))
        # Bounds of the rounding errors of a closeness in float32, per length of the point and beside it.
        self._error_per_length = (centroids.shape[1] + 4) * UNIT_ROUNDOFF * float(np.sqrt(offsets.max()))
        self._error = 4 * UNIT_ROUNDOFF * float(np.abs(self._offsets).max())

    def nearest(self, points: Float32[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        """Return the nearest centroid of every point.

        Args:
            points: Block of points, (N, D).

        Returns:
            Index of a centroid for each point, (N,).
        """
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
        """Return p . c - (|c|^2 + penalty) / 2 for all pairs of a point p and a centroid c: large for near centroids.

        The squared distance plus penalty is |p|^2 - 2 closeness.

        Args:
            points: (N, D).

        Returns:
            Closeness, (N, M).
        """
        # Not by numpy, whose product would start threads besides those of the other blocks.
        return torch.mm(torch.from_numpy(points.astype(np.float64)), self._exact).numpy() - self._offsets
