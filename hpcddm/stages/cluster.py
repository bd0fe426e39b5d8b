"""Stage cluster: the rule by which every sample gets one of K clusters."""

import numpy as np

from hpcddm import plugins
from hpcddm.clusterings.base import Clustering
from hpcddm.clusterings.partition import write_arrays
from hpcddm.config import Experiment
from hpcddm.data import draws, samples
from hpcddm.errors import require
from hpcddm.pipeline.cluster import PARTITION
from hpcddm.pipeline.ranges import TRAIN
from hpcddm.runtime.unit import Result, Unit

MOST_FITTED = 1 << 20
"""Largest number of samples whose features are in memory together; of more, as many are drawn at random."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Fit the partition to the features of the training images."""
    features = samples.features(samples.catalog(unit, TRAIN))
    numbers = fitted_numbers(len(features), settings.seed)
    clustering = plugins.create(Clustering, settings.cluster.clustering)
    try:
        partition = clustering.fit(features.gather(numbers), settings.cluster.experts, settings.seed)
    except ValueError as error:
        require(False, f"cluster.clustering: {error}")
    write_arrays(unit.folder / PARTITION, partition)
    return Result([PARTITION], {"images": len(features), "fitted": len(numbers)})


def fitted_numbers(count: int, seed: int, most: int = MOST_FITTED) -> range | np.ndarray:
    """Choose the samples to which the partition is fitted: all, or at random one of each of `most` equal stretches."""
    if count <= most:
        return range(count)
    edges = np.arange(most + 1) * count // most
    places = draws.uniform(seed, "cluster/fitted", range(most)).numpy() * np.diff(edges)
    return edges[:-1] + places.astype(np.int64)
