"""Bytes that an expert reads for each byte of its images, where a file is read in groups of rows."""

from bisect import bisect_right
from functools import partial
from itertools import accumulate

import numpy as np

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data.open_files import RowGroupCache
from hpcddm.data.run_samples import list_order
from hpcddm.randomness.streams import PLANNED_ORDER
from hpcddm.runs.ranges import TRAIN
from hpcddm.sources.base import InPlaceSource
from hpcddm.sources.source_files import RowGroup

MAX_READS = 20_000
"""Samples by which the ratio is estimated."""
READ_TOGETHER = 16
"""Samples that a thread reads at once, in the order of their files."""
MAX_RATIO = 2.0
"""Largest ratio that needs no advice."""


def bytes_per_byte(experiment: Experiment) -> float:
    """Return the bytes that an expert reads in its first epoch for each byte of its images.

    The order of a training is followed through the cache of row groups, by the sizes in the footers of the files; the
    list is a random share of the samples. Copies of a list, and files whose images have byte offsets, give 1.

    Args:
        experiment: The experiment; its source is there.
    """
    source = experiment.data.source
    if experiment.data.read_from.reads_copies or not source.uses_existing_tars:
        return 1.0
    groups = [
        (place, number, group)
        for place, file in enumerate(variants.create(InPlaceSource, source).tars(TRAIN))
        for number, group in enumerate(file.row_groups())
    ]
    if not groups:
        return 1.0
    ends = list(accumulate(group.rows for _, _, group in groups))
    chosen = np.random.default_rng(experiment.seed).random(ends[-1]) * experiment.cluster.experts < 1
    numbers = np.flatnonzero(chosen) if chosen.any() else np.arange(ends[-1])
    order = list_order(experiment, PLANNED_ORDER, numbers)
    count = min(len(numbers), MAX_READS)
    cache, read = RowGroupCache[RowGroup](), list[int]()

    def load(group: RowGroup) -> RowGroup:
        read.append(group.stored_bytes)
        return group

    wanted = 0.0
    for start in range(0, count, READ_TOGETHER):
        for number in sorted(order.sample_numbers(range(start, min(start + READ_TOGETHER, count))).tolist()):
            file, place, group = groups[bisect_right(ends, number)]
            cache.get((file, place), partial(load, group))
            wanted += group.bytes / group.rows
    return sum(read) / wanted if wanted else 1.0


def advice(ratio: float) -> str | None:
    """Return the advice about a ratio; None for one that needs none."""
    if ratio <= MAX_RATIO:
        return None
    return (
        f"an expert reads {ratio:.1f} bytes for each byte of its images, whole row groups of compressed parquet; with"
        " data.read_from='{name: expert_copy}' it reads 1.0 from a copy of its own"
    )
