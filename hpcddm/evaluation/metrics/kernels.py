"""Sums of the kernel (x y / D + 1)^3 over pairs of points, by tenths, and the kernel distance from them."""

from dataclasses import dataclass

import numpy as np

from hpcddm.evaluation.metrics.tenth_rows import TENTHS, tenth_of_rows, tenth_rows

ROWS_PER_BLOCK = 1024


def within_sums(points: np.ndarray, tenths: np.ndarray | None = None) -> np.ndarray:
    """Sum the kernel over pairs of distinct points of a set.

    Args:
        points: (N, D) features.
        tenths: (N,) the tenth of each point; by default of its row.

    Returns:
        (10, 10) sums, by the tenths of both points.
    """
    sums = between_sums(points, points, tenths, tenths)
    diagonal = (np.square(points, dtype=np.float64).sum(1) / points.shape[1] + 1) ** 3
    return sums - np.diag(_of_tenths(len(points), tenths).T @ diagonal)


def between_sums(
    first: np.ndarray,
    second: np.ndarray,
    first_tenths: np.ndarray | None = None,
    second_tenths: np.ndarray | None = None,
) -> np.ndarray:
    """Sum the kernel over pairs of a point of one set and a point of another one, in float64.

    Args:
        first: (N, D) features.
        second: (M, D) features.
        first_tenths: (N,) the tenth of each point; by default of its row.
        second_tenths: (M,) the same for the second set.

    Returns:
        (10, 10) sums, by the tenths of both points.
    """
    return grouped_sums(first, second, _of_tenths(len(first), first_tenths), _of_tenths(len(second), second_tenths))


def grouped_sums(first: np.ndarray, second: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Sum the kernel over pairs of a point of a group and a point of another group, in float64.

    Args:
        first: (N, D) features.
        second: (M, D) features.
        rows: (N, G) 1 where a point of the first set is in a group, else 0.
        columns: (M, H) the same for the second set.

    Returns:
        (G, H) sums.
    """
    second, sums = second.astype(np.float64, copy=False), np.zeros((rows.shape[1], columns.shape[1]))
    for start in range(0, len(first), ROWS_PER_BLOCK):
        block = slice(start, start + ROWS_PER_BLOCK)
        kernel = first[block].astype(np.float64, copy=False) @ second.T
        kernel /= first.shape[1]
        kernel += 1
        kernel *= kernel * kernel
        sums += rows[block].T @ (kernel @ columns)
    return sums


@dataclass(frozen=True)
class KernelSums:
    """Sums of the kernel within and between two sets, by the tenths of both points, (10, 10) each.

    Args:
        first: Sums within the first set.
        second: Sums within the second set.
        between: Sums between the sets.
        first_counts: (10,) number of the first set's points in each tenth.
        second_counts: (10,) the same for the second set.
    """

    first: np.ndarray
    second: np.ndarray
    between: np.ndarray
    first_counts: np.ndarray
    second_counts: np.ndarray

    def distance(self, without: int | None = None) -> float:
        """Compute the unbiased squared MMD (Binkowski et al., arXiv 1801.01401, eq. 4); it can be slightly negative.

        Args:
            without: Tenth that is left out of both sets.

        Raises:
            ValueError: A set has fewer than two points.
        """
        kept = np.array([float(tenth != without) for tenth in range(TENTHS)])
        n, m = float(kept @ self.first_counts), float(kept @ self.second_counts)
        if min(n, m) < 2:
            raise ValueError(f"a kernel distance needs 2 samples of each, not {n:.0f} and {m:.0f}")
        first, second, between = (float(kept @ sums @ kept) for sums in (self.first, self.second, self.between))
        return first / (n * (n - 1)) + second / (m * (m - 1)) - 2 * between / (n * m)


def kernel_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Compute the unbiased squared MMD over all pairs of two sets of features.

    Unlike the Frechet distance its expectation does not depend on the number of samples.

    Args:
        first: (N, D) features.
        second: (M, D) features.

    Raises:
        ValueError: A set has fewer than two samples.
    """
    counts = (tenth_counts(len(first)), tenth_counts(len(second)))
    return KernelSums(within_sums(first), within_sums(second), between_sums(first, second), *counts).distance()


def tenth_counts(count: int) -> np.ndarray:
    """Return the number of rows in each tenth, (10,)."""
    return np.array([rows.stop - rows.start for rows in tenth_rows(count)])


def _of_tenths(count: int, tenths: np.ndarray | None) -> np.ndarray:
    """Return a matrix (count, 10) that has a 1 in the column of each row's tenth."""
    return np.eye(TENTHS)[tenth_of_rows(count) if tenths is None else tenths]
