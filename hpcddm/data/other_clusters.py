"""Samples of other clusters in the list of an expert, a share `experts.other_clusters_share` of it."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import UInt32

from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.columns import Column
from hpcddm.errors import require
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import OTHER_CLUSTERS


def count_from_other_clusters(share: float, cluster_size: int, others: int, cluster: int) -> int:
    """Count the samples of other clusters that are a share of a list with so many of its own.

    Raises `UserError` where the other clusters have fewer.
    """
    count, most = round(cluster_size * share / (1 - share)), others / (cluster_size + others)
    name = "experts.other_clusters_share"
    text = f"{name}: cluster {cluster} has {cluster_size} samples, and only {others} are outside of it"
    require(count <= others, f"{text}; take at most {most:.3g}")
    return count


def mix_in_other_clusters(
    clusters: Column, cluster: int, others: int, count: int, seed: int
) -> Iterator[UInt32[np.ndarray, " n"]]:
    """Yield the numbers of a cluster's samples and of `count` of the `others`, ascending, block by block.

    Of the others every one is equally likely. It takes no memory that grows with the samples: whether one is chosen
    follows from the seed, the cluster and its place among the others.
    """
    place = 0
    for block in split_into_blocks(range(len(clusters))):
        kept = clusters.gather(block) == cluster
        outside = np.flatnonzero(~kept)
        places = place + np.arange(len(outside))
        kept[outside] = keyed.is_in_random_subset(seed, OTHER_CLUSTERS.format(cluster=cluster), others, count, places)
        place += len(outside)
        yield (block.start + np.flatnonzero(kept)).astype("<u4")
