"""Stage lists: the numbers of every expert's samples, and what all ranges' clusters are."""

import hashlib

import numpy as np

from hpcddm.config import Experiment
from hpcddm.data import samples
from hpcddm.data.catalog import blocks_of
from hpcddm.data.columns import Column, write_columns
from hpcddm.data.samples import NUMBERS
from hpcddm.errors import require
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.pipeline.lists import LISTS_FILE, list_file, list_name
from hpcddm.pipeline.ranges import HELDOUT, TRAIN
from hpcddm.rundir import atomic
from hpcddm.rundir.manifest import DIGESTS, digest
from hpcddm.runtime.unit import Result, Unit


def run(settings: Experiment, unit: Unit) -> Result:
    """Write one list of sample numbers, in ascending order, for each expert, with the digest of its samples."""
    num_experts, catalog = settings.cluster.experts, samples.catalog(unit, TRAIN)
    clusters = samples.clusters(catalog)
    lists, digests = {}, {}
    for expert in range(num_experts):
        unit.leave_if_told()
        numbers = members(clusters, expert)
        require(len(numbers) > 0, f"cluster.clustering: cluster {expert} is empty; use another seed or fewer experts")
        write_columns(unit.folder / list_file(expert), {NUMBERS: numbers})
        lists[list_name(expert)] = catalog.described(numbers, settings.data.num_classes)
        digests[list_name(expert)] = catalog.digest(numbers)
        unit.heartbeat.beat(expert + 1, num_experts)
    digests[ALL] = digest([digests, _heldout_digest(unit)])
    sizes = [entry["samples"] for entry in lists.values()]
    print(f"cluster sizes {sizes}, largest / mean {max(sizes) * num_experts / sum(sizes):.2f}", flush=True)
    ranges = {key: assigned.digest for key, assigned in unit.inputs_of("assign").items()}
    atomic.write_json(unit.folder / LISTS_FILE, {"lists": lists, DIGESTS: digests, "clusters": ranges})
    return Result([LISTS_FILE, *map(list_file, range(num_experts))], {"lists": lists, DIGESTS: digests, "sizes": sizes})


def _heldout_digest(unit: Unit) -> str:
    """Hash the clusters of the held-out samples, in their order."""
    hashed, clusters = hashlib.sha256(), samples.clusters(samples.catalog(unit, HELDOUT))
    for block in blocks_of(range(len(clusters))):
        hashed.update(clusters.gather(block).tobytes())
    return hashed.hexdigest()


def members(clusters: Column, cluster: int) -> np.ndarray:
    """List the numbers of a cluster's samples, uint32 (N,), in ascending order."""
    blocks = blocks_of(range(len(clusters)))
    found = [block[0] + np.flatnonzero(clusters.gather(block) == cluster) for block in blocks]
    return np.concatenate(found).astype("<u4")
