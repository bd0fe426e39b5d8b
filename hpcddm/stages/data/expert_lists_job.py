"""Stage expert_lists: the numbers of every expert's samples, and what all ranges' clusters are."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int64, Integer, UInt32

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Expert
from hpcddm.data import run_samples, sample_keys
from hpcddm.data.catalog import Catalog, split_into_blocks
from hpcddm.data.column_files import RowBlocks, write_columns
from hpcddm.data.columns import Column, count_values
from hpcddm.data.other_clusters import count_from_other_clusters, mix_in_other_clusters
from hpcddm.data.run_samples import NUMBERS
from hpcddm.errors import require
from hpcddm.files import atomic
from hpcddm.files.atomic import digest
from hpcddm.jobs.unit import Result, Unit
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.runs.files import LISTS_FILE, list_file, list_name, training_file
from hpcddm.runs.manifest import DIGESTS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.unit_keys import EXPERT_LISTS
from hpcddm.stages.progress import advance

NUMBER_TYPE = np.dtype("<u4")


def run(experiment: Experiment, unit: Unit) -> Result:
    """Write lists of sample numbers, in ascending order, with the digests of their samples: by clusters, or by keys."""
    return _by_clusters(experiment, unit) if unit.key == EXPERT_LISTS else _by_keys(experiment, unit)


def _by_clusters(experiment: Experiment, unit: Unit) -> Result:
    num_experts, catalog = experiment.cluster.experts, run_samples.open_unit_catalog(unit, TRAIN)
    clusters = run_samples.clusters(catalog)
    sizes = cluster_sizes(clusters, num_experts).tolist()
    lists: dict[str, dict[str, Any]] = {}
    digests: dict[str, str] = {}
    remedy = experiment.cluster.clustering.remedy(num_experts)
    for expert, size in enumerate(sizes):
        unit.stop_if_requested()
        require(size > 0, f"cluster.clustering: cluster {expert} is empty; to change: {remedy}")
        numbers = RowBlocks((size,), NUMBER_TYPE, members(clusters, expert))
        name = list_name(expert)
        lists[name], digests[name] = _write(experiment, unit, catalog, expert, numbers)
        unit.heartbeat.beat(expert + 1, num_experts)
    digests[ALL] = digest([digests, _heldout_digest(unit)])
    share = experiment.experts.other_clusters_share
    trained = _add_other_clusters(experiment, unit, clusters, lists, digests) if share else []
    print(f"cluster sizes {sizes}, largest / mean {max(sizes) * num_experts / sum(sizes):.2f}", flush=True)
    ranges = {key: assigned.digest for key, assigned in unit.inputs_of("assign").items()}
    atomic.write_json(unit.folder / LISTS_FILE, {"lists": lists, DIGESTS: digests, "clusters": ranges})
    outputs = [LISTS_FILE, *map(list_file, range(num_experts)), *trained]
    return Result(outputs, {"lists": lists, DIGESTS: digests, "sizes": sizes})


def _add_other_clusters(
    experiment: Experiment, unit: Unit, clusters: Column, lists: dict[str, dict[str, Any]], digests: dict[str, str]
) -> list[str]:
    """Write the lists that the experts are trained on, with samples of other clusters, and return their files.

    lists, digests: of the clusters' own; the lists get the number of samples of other clusters, the digests those of
    both.
    """
    catalog, share = run_samples.open_unit_catalog(unit, TRAIN), experiment.experts.other_clusters_share
    files = []
    for expert in range(experiment.cluster.experts):
        unit.stop_if_requested()
        name, file = list_name(expert), training_file(expert)
        own = lists[name]["samples"]
        others = len(clusters) - own
        count = count_from_other_clusters(share, own, others, expert)
        numbers = mix_in_other_clusters(clusters, expert, others, count, experiment.seed)
        write_columns(unit.folder / file, {NUMBERS: RowBlocks((own + count,), NUMBER_TYPE, numbers)})
        written = Column(NUMBERS, {unit.folder / file: own + count}).as_array()
        digests[name] = digest([digests[name], catalog.digest(written)])
        lists[name]["other_clusters"] = count
        files.append(file)
        unit.heartbeat.beat(expert + 1, experiment.cluster.experts)
    print(f"samples of other clusters {[entry['other_clusters'] for entry in lists.values()]}", flush=True)
    return files


def _by_keys(experiment: Experiment, unit: Unit) -> Result:
    """Write the list of the samples that a file names."""
    extra, catalog = experiment.experts.extra_expert(unit.name), run_samples.open_unit_catalog(unit, TRAIN)
    path = (unit.run.root / extra.list).resolve()
    keys = sample_keys.read(path)
    atomic.require_submitted(path, extra.content_hash, atomic.sha256(path))

    numbers = sample_keys.numbers_of(keys, path, catalog.texts("key"), lambda done: advance(unit, done, len(catalog)))
    described, samples_digest = _write(experiment, unit, catalog, extra.name, numbers)
    print(f"{len(numbers)} samples", flush=True)
    results = {"lists": {extra.name: described}, DIGESTS: {extra.name: samples_digest}}
    return Result([list_file(extra.name)], results)


def _write(
    experiment: Experiment, unit: Unit, catalog: Catalog, expert: Expert, numbers: Integer[np.ndarray, " n"] | RowBlocks
) -> tuple[dict[str, Any], str]:
    """Write one list; return its description, and the digest of its samples."""
    path = unit.folder / list_file(expert)
    write_columns(path, {NUMBERS: numbers})
    written = Column(NUMBERS, {path: numbers.shape[0]}).as_array()
    return catalog.summary(written, experiment.data.num_classes), catalog.digest(written)


def _heldout_digest(unit: Unit) -> str:
    """Hash the clusters of the held-out samples, in their order."""
    hashed, clusters = hashlib.sha256(), run_samples.clusters(run_samples.open_unit_catalog(unit, HELDOUT))
    for block in split_into_blocks(range(len(clusters))):
        hashed.update(clusters.gather(block).tobytes())
    return hashed.hexdigest()


def cluster_sizes(clusters: Column, num_clusters: int) -> Int64[np.ndarray, " {num_clusters}"]:
    """Count the samples of every cluster."""
    sizes = np.zeros(num_clusters, dtype=np.int64)
    for block in split_into_blocks(range(len(clusters))):
        sizes += count_values(clusters, block, num_clusters)
    return sizes


def members(clusters: Column, cluster: int) -> Iterator[UInt32[np.ndarray, " n"]]:
    """Yield the numbers of a cluster's samples in ascending order, block by block."""
    for block in split_into_blocks(range(len(clusters))):
        yield (block[0] + np.flatnonzero(clusters.gather(block) == cluster)).astype(NUMBER_TYPE)
