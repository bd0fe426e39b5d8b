"""Samples of other clusters that an expert is trained on beside its own, as `experts.foreign_share` of its list."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import UInt32

from hpcddm.data import draws
from hpcddm.data.catalog import blocks_of
from hpcddm.data.columns import Column
from hpcddm.errors import require


def foreign_count(share: float, own: int, others: int, cluster: int) -> int:
    """Count the samples of other clusters that are a share of a list with so many of its own.

    Raises `UserError` where the other clusters have fewer.
    """
    count, most = round(own * share / (1 - share)), others / (own + others)
    text = f"experts.foreign_share: cluster {cluster} has {own} samples, and only {others} lie outside of it"
    require(count <= others, f"{text}; take at most {most:.3g}")
    return count


def with_foreign(
    clusters: Column, cluster: int, others: int, count: int, seed: int
) -> Iterator[UInt32[np.ndarray, " n"]]:
    """Yield the numbers of a cluster's samples and of `count` of the `others`, ascending, block by block.

    Of the others every one is equally likely. It takes no memory that grows with the samples: whether one is chosen
    follows from the seed, the cluster and its place among the others.
    """
    place = 0
    for block in blocks_of(range(len(clusters))):
        kept = clusters.gather(block) == cluster
        outside = np.flatnonzero(~kept)
        places = place + np.arange(len(outside))
        kept[outside] = draws.are_chosen(seed, f"lists/foreign/cluster-{cluster}", others, count, places)
        place += len(outside)
        yield (block.start + np.flatnonzero(kept)).astype("<u4")
