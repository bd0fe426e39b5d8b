"""Stage lists: the numbers of every expert's samples, and what all ranges' clusters are."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int64, Integer, UInt32

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Expert
from hpcddm.data import sample_keys, samples
from hpcddm.data.catalog import Catalog, blocks_of
from hpcddm.data.column_files import Blocks, write_columns
from hpcddm.data.columns import Column, counted
from hpcddm.data.foreign import foreign_count, with_foreign
from hpcddm.data.samples import NUMBERS
from hpcddm.errors import require
from hpcddm.files import atomic
from hpcddm.files.atomic import digest
from hpcddm.jobs.unit import Result, Unit
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.runs.files import LISTS_FILE, list_file, list_name, training_file
from hpcddm.runs.manifest import DIGESTS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.unit_keys import LISTS

NUMBER_TYPE = np.dtype("<u4")


def run(settings: Experiment, unit: Unit) -> Result:
    """Write lists of sample numbers, in ascending order, with the digests of their samples: by clusters, or by keys."""
    return _by_clusters(settings, unit) if unit.key == LISTS else _by_keys(settings, unit)


def _by_clusters(settings: Experiment, unit: Unit) -> Result:
    num_experts, catalog = settings.cluster.experts, samples.catalog(unit, TRAIN)
    clusters = samples.clusters(catalog)
    sizes = cluster_sizes(clusters, num_experts).tolist()
    lists: dict[str, dict[str, Any]] = {}
    digests: dict[str, str] = {}
    remedy = settings.cluster.clustering.remedy(num_experts)
    for expert, size in enumerate(sizes):
        unit.stop_if_requested()
        require(size > 0, f"cluster.clustering: cluster {expert} is empty; to change: {remedy}")
        numbers = Blocks((size,), NUMBER_TYPE, members(clusters, expert))
        name = list_name(expert)
        lists[name], digests[name] = _write(settings, unit, catalog, expert, numbers)
        unit.heartbeat.beat(expert + 1, num_experts)
    digests[ALL] = digest([digests, _heldout_digest(unit)])
    trained = _with_foreign(settings, unit, clusters, lists, digests) if settings.experts.foreign_share else []
    print(f"cluster sizes {sizes}, largest / mean {max(sizes) * num_experts / sum(sizes):.2f}", flush=True)
    ranges = {key: assigned.digest for key, assigned in unit.inputs_of("assign").items()}
    atomic.write_json(unit.folder / LISTS_FILE, {"lists": lists, DIGESTS: digests, "clusters": ranges})
    outputs = [LISTS_FILE, *map(list_file, range(num_experts)), *trained]
    return Result(outputs, {"lists": lists, DIGESTS: digests, "sizes": sizes})


def _with_foreign(
    settings: Experiment, unit: Unit, clusters: Column, lists: dict[str, dict[str, Any]], digests: dict[str, str]
) -> list[str]:
    """Write the lists that the experts are trained on, with samples of other clusters, and return their files.

    lists, digests: of the clusters' own; the lists get the number of foreign samples, the digests those of both.
    """
    catalog, share = samples.catalog(unit, TRAIN), settings.experts.foreign_share
    files = []
    for expert in range(settings.cluster.experts):
        unit.stop_if_requested()
        name, file = list_name(expert), training_file(expert)
        own = lists[name]["samples"]
        others = len(clusters) - own
        count = foreign_count(share, own, others, expert)
        numbers = with_foreign(clusters, expert, others, count, settings.seed)
        write_columns(unit.folder / file, {NUMBERS: Blocks((own + count,), NUMBER_TYPE, numbers)})
        written = Column(NUMBERS, {unit.folder / file: own + count}).mapped()
        digests[name] = digest([digests[name], catalog.digest(written)])
        lists[name]["foreign"] = count
        files.append(file)
        unit.heartbeat.beat(expert + 1, settings.cluster.experts)
    print(f"samples of other clusters {[entry['foreign'] for entry in lists.values()]}", flush=True)
    return files


def _by_keys(settings: Experiment, unit: Unit) -> Result:
    """Write the list of the samples that a file names."""
    joined, catalog = settings.experts.joined_expert(unit.name), samples.catalog(unit, TRAIN)
    path = (unit.run.root / joined.list).resolve()
    keys = sample_keys.read(path)
    atomic.require_submitted(path, joined.content, atomic.sha256(path))

    def advance(done: int) -> None:
        unit.stop_if_requested()
        unit.heartbeat.beat(done, len(catalog))

    numbers = sample_keys.numbers_of(keys, path, catalog.texts("key"), advance)
    described, samples_digest = _write(settings, unit, catalog, joined.name, numbers)
    print(f"{len(numbers)} samples", flush=True)
    results = {"lists": {joined.name: described}, DIGESTS: {joined.name: samples_digest}}
    return Result([list_file(joined.name)], results)


def _write(
    settings: Experiment, unit: Unit, catalog: Catalog, expert: Expert, numbers: Integer[np.ndarray, " n"] | Blocks
) -> tuple[dict[str, Any], str]:
    """Write one list; return its description, and the digest of its samples."""
    path = unit.folder / list_file(expert)
    write_columns(path, {NUMBERS: numbers})
    written = Column(NUMBERS, {path: numbers.shape[0]}).mapped()
    return catalog.described(written, settings.data.num_classes), catalog.digest(written)


def _heldout_digest(unit: Unit) -> str:
    """Hash the clusters of the held-out samples, in their order."""
    hashed, clusters = hashlib.sha256(), samples.clusters(samples.catalog(unit, HELDOUT))
    for block in blocks_of(range(len(clusters))):
        hashed.update(clusters.gather(block).tobytes())
    return hashed.hexdigest()


def cluster_sizes(clusters: Column, num_clusters: int) -> Int64[np.ndarray, " {num_clusters}"]:
    """Count the samples of every cluster."""
    sizes = np.zeros(num_clusters, dtype=np.int64)
    for block in blocks_of(range(len(clusters))):
        sizes += counted(clusters, block, num_clusters)
    return sizes


def members(clusters: Column, cluster: int) -> Iterator[UInt32[np.ndarray, " n"]]:
    """Yield the numbers of a cluster's samples in ascending order, block by block."""
    for block in blocks_of(range(len(clusters))):
        yield (block[0] + np.flatnonzero(clusters.gather(block) == cluster)).astype(NUMBER_TYPE)
