"""Stage assign: the cluster of every sample of a range, as a column."""

from collections.abc import Iterator

import numpy as np

from hpcddm import plugins
from hpcddm.clusterings.base import Clustering
from hpcddm.clusterings.partition import read_arrays
from hpcddm.config import Experiment
from hpcddm.data import samples
from hpcddm.data.catalog import blocks_of
from hpcddm.data.column_files import Blocks, write_columns
from hpcddm.data.columns import Column
from hpcddm.pipeline.assign import CLUSTERS
from hpcddm.pipeline.cluster import PARTITION
from hpcddm.pipeline.encode import FEATURES
from hpcddm.pipeline.keys import CLUSTER
from hpcddm.runtime.unit import Result, Unit

CLUSTER_TYPE = np.dtype("<u2")


def run(settings: Experiment, unit: Unit) -> Result:
    """Assign the samples of one range to the clusters of the partition."""
    numbers = samples.range_of(unit)
    path = unit.input(f"encode/{unit.name}", FEATURES)
    features = Column("features", {path: len(numbers)})
    clustering = plugins.create(Clustering, settings.cluster.clustering)
    partition = clustering.load(read_arrays(unit.input(CLUSTER, PARTITION)))

    def assigned() -> Iterator[np.ndarray]:
        for block in blocks_of(range(len(features))):
            unit.stop_if_requested()
            yield partition.assign(features.gather(block))
            unit.heartbeat.beat(block.stop, len(features))

    clusters = Blocks((len(features),), CLUSTER_TYPE, assigned())
    write_columns(unit.folder / CLUSTERS, {samples.CLUSTER: clusters})
    return Result([CLUSTERS], {"images": len(features)})
