"""Stage assign: the cluster of every sample of a range, as a column."""

from collections.abc import Iterator

import numpy as np

from hpcddm.clustering.base import Clustering
from hpcddm.clustering.samples import Samples
from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.column_files import RowBlocks, write_columns
from hpcddm.data.columns import Column
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import CLUSTERS, FEATURES, PARTITION
from hpcddm.runs.ranges import split_of
from hpcddm.runs.unit_keys import CLUSTER

CLUSTER_TYPE = np.dtype("<u2")


def run(experiment: Experiment, unit: Unit) -> Result:
    """Assign the samples of one range to the clusters of the partition."""
    numbers, own = run_samples.range_of(unit), experiment.cluster.clustering
    features = None
    if own.needs_features:
        features = Column(run_samples.FEATURE, {unit.input(f"encode/{unit.name}", FEATURES): len(numbers)})
    split = Samples(run_samples.open_unit_catalog(unit, split_of(unit.key)), features, numbers.start)
    clustering = variants.create(Clustering, own)
    partition = clustering.read(unit.input(CLUSTER, PARTITION), experiment)

    def assigned() -> Iterator[np.ndarray]:
        for block in split_into_blocks(numbers):
            unit.stop_if_requested()
            yield partition.assign(split, block)
            unit.heartbeat.beat(block.stop - numbers.start, len(numbers))

    clusters = RowBlocks((len(numbers),), CLUSTER_TYPE, assigned())
    write_columns(unit.folder / CLUSTERS, {run_samples.CLUSTER: clusters})
    return Result([CLUSTERS], {"images": len(numbers)})
