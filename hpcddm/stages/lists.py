"""Stage lists: the numbers of every expert's samples, and what all ranges' clusters are."""

import hashlib
from typing import Any

import numpy as np
from jaxtyping import Integer

from hpcddm.config import Experiment
from hpcddm.data import sample_keys, samples
from hpcddm.data.catalog import Catalog, blocks_of
from hpcddm.data.columns import Column, write_columns
from hpcddm.data.samples import NUMBERS
from hpcddm.errors import require
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.pipeline.keys import LISTS
from hpcddm.pipeline.lists import LISTS_FILE, list_file, list_name
from hpcddm.pipeline.ranges import HELDOUT, TRAIN
from hpcddm.rundir import atomic
from hpcddm.rundir.manifest import DIGESTS, digest
from hpcddm.runtime.unit import Result, Unit
from hpcddm.training.settings import Expert


def run(settings: Experiment, unit: Unit) -> Result:
    """Write lists of sample numbers, in ascending order, with the digests of their samples: by clusters, or by keys."""
    return _by_clusters(settings, unit) if unit.key == LISTS else _by_keys(settings, unit)


def _by_clusters(settings: Experiment, unit: Unit) -> Result:
    num_experts, catalog = settings.cluster.experts, samples.catalog(unit, TRAIN)
    clusters = samples.clusters(catalog)
    lists: dict[str, dict[str, Any]] = {}
    digests: dict[str, str] = {}
    for expert in range(num_experts):
        unit.stop_if_requested()
        numbers = members(clusters, expert)
        require(len(numbers) > 0, f"cluster.clustering: cluster {expert} is empty; use another seed or fewer experts")
        lists |= _write(settings, unit, catalog, expert, numbers)
        digests[list_name(expert)] = catalog.digest(numbers)
        unit.heartbeat.beat(expert + 1, num_experts)
    digests[ALL] = digest([digests, _heldout_digest(unit)])
    sizes = [entry["samples"] for entry in lists.values()]
    print(f"cluster sizes {sizes}, largest / mean {max(sizes) * num_experts / sum(sizes):.2f}", flush=True)
    ranges = {key: assigned.digest for key, assigned in unit.inputs_of("assign").items()}
    atomic.write_json(unit.folder / LISTS_FILE, {"lists": lists, DIGESTS: digests, "clusters": ranges})
    return Result([LISTS_FILE, *map(list_file, range(num_experts))], {"lists": lists, DIGESTS: digests, "sizes": sizes})


def _by_keys(settings: Experiment, unit: Unit) -> Result:
    """Write the list of the samples that a file names."""
    joined, catalog = settings.experts.joined_expert(unit.name), samples.catalog(unit, TRAIN)
    path = (unit.run.root / joined.list).resolve()
    keys = sample_keys.read(path)
    is_same = joined.content in (None, atomic.sha256(path))
    require(is_same, f"{path}: has changed since the run was submitted; put it back, or submit again")

    def advance(done: int) -> None:
        unit.stop_if_requested()
        unit.heartbeat.beat(done, len(catalog))

    numbers = sample_keys.numbers_of(keys, path, catalog.texts("key"), advance)
    lists = _write(settings, unit, catalog, joined.name, numbers)
    print(f"{len(numbers)} samples", flush=True)
    return Result([list_file(joined.name)], {"lists": lists, DIGESTS: {joined.name: catalog.digest(numbers)}})


def _write(
    settings: Experiment, unit: Unit, catalog: Catalog, expert: Expert, numbers: Integer[np.ndarray, " n"]
) -> dict[str, dict[str, Any]]:
    """Write one list; return its description by its name."""
    write_columns(unit.folder / list_file(expert), {NUMBERS: numbers})
    return {list_name(expert): catalog.described(numbers, settings.data.num_classes)}


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
