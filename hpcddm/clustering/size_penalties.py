"""Prices of clusters that keep each below a largest size: a point takes the cluster of least cost plus price.

With squared distances as costs the clusters are the cells of a power diagram, and prices that are zero or belong to a
full cluster are the dual solution of the assignment of least total cost under these capacities (Bertsekas, The auction
algorithm, 1988; Aurenhammer, Hoffmann and Aronov, Minkowski-type theorems and least-squares clustering, 1998). A new
point is assigned by them alone, whatever the others are.
"""

import numpy as np
from jaxtyping import Float64, Int64

from hpcddm.clustering.row_blocks import map_blocks

MAX_BIDS = 2000
"""Largest number of times that a price rises."""


def find_penalties(
    costs: Float64[np.ndarray, "n k"], weights: Float64[np.ndarray, " n"], max_weight: float
) -> Float64[np.ndarray, " k"]:
    """Find prices with which no cluster has points of more than a weight of `most` together.

    The largest cluster's price rises until enough of its points prefer another one, again and again, from zero.
    Raises ValueError where that does not end: points are too heavy, or `most` is too close to an equal share.
    """
    prices = np.zeros(costs.shape[1])
    for _ in range(MAX_BIDS):
        clusters = _cheapest(costs, prices)
        sizes = np.bincount(clusters, weights, len(prices))
        largest = int(sizes.argmax())
        if sizes[largest] <= max_weight:
            return prices
        own = np.flatnonzero(clusters == largest)
        prices[largest] += _rise(costs[own] + prices, weights[own], largest, max_weight)
    raise ValueError(f"max_share: no prices found in {MAX_BIDS} bids; take a larger share, or more fine clusters")


def _cheapest(costs: Float64[np.ndarray, "n k"], prices: Float64[np.ndarray, " k"]) -> Int64[np.ndarray, " n"]:
    """Return the cluster of least cost plus price of every point."""
    clusters = np.empty(len(costs), dtype=np.int64)
    map_blocks(lambda rows: (costs[rows] + prices).argmin(1), len(costs), clusters.__setitem__)
    return clusters


def _rise(paid: Float64[np.ndarray, "n k"], weights: Float64[np.ndarray, " n"], cluster: int, most: float) -> float:
    """Return by how much a cluster's price must rise so that its points in it weigh at most `most`.

    paid: costs and prices of its points. The rise is between those of the last point to leave and the next, so that
    rounding moves none.
    """
    others = np.delete(paid, cluster, axis=1).min(1)
    margins = others - paid[:, cluster]
    order = np.argsort(margins, kind="stable")
    ascending = margins[order]
    leaves = np.searchsorted(np.cumsum(weights[order]), weights.sum() - most)
    last = float(ascending[min(int(leaves), len(ascending) - 1)])
    after = ascending[ascending > last]
    return (last + float(after[0])) / 2 if len(after) else 2 * last + 1e-6
