"""Stage cluster_report: writes clusters.json and a page about the clusters, from samples of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from hpcddm.clustering import cluster_keywords, measures
from hpcddm.clustering.base import Clustering
from hpcddm.clustering.partition import FeaturePartition
from hpcddm.config import paths, variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.catalog import Catalog, split_into_blocks
from hpcddm.data.columns import Column
from hpcddm.data.reader import CatalogReader
from hpcddm.evaluation.report import clusters_page
from hpcddm.evaluation.report.cluster_facts import AMBIGUOUS, RANDOM, TYPICAL, ClusterFacts, PartitionFacts
from hpcddm.evaluation.report.report_content import ClusterContent
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import CLUSTERS_FILE, CLUSTERS_PAGE, PARTITION
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.stored_results import class_names, list_results
from hpcddm.runs.unit_keys import CLUSTER
from hpcddm.stages.data.cluster_report import RANDOM_IMAGES, SELECTED_IMAGES, images_per_cluster
from hpcddm.stages.workload import SINGLE_READING, Work, Workload

MAX_SAMPLED, MAX_IN_SILHOUETTES = 4096, 4096
"""Largest number of samples that are looked at: of each cluster; and, of all together, in the silhouettes."""
MIN_IN_SILHOUETTES = 32
"""Samples of each cluster in the silhouettes, however many clusters there are."""
ROWS_PER_BLOCK = 512
"""Samples whose features are in memory together."""
MAX_CLASSES, MAX_WORDS, MAX_CAPTIONS, MAX_LETTERS = 6, 12, 4, 160
"""Maximum numbers of classes, words and captions per cluster, and of letters of a caption."""
MIN_SHARE = 0.005
"""Smallest share of a class that the page mentions."""
DIGITS = 6
"""Decimals of figures in the file: fewer than those in which machines differ."""
SampleNumbers = Int64[np.ndarray, " n"]
"""Numbers of the samples that were drawn of one cluster."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Measure the clusters, and write clusters.json and the page."""
    reader = run_samples.open_reader(unit, TRAIN)
    facts = _facts(experiment, unit, reader)
    clusters = [
        ClusterContent.read(index, cluster.images, cluster.shown, reader.images)
        for index, cluster in enumerate(facts.clusters)
    ]
    atomic.write_json(unit.folder / CLUSTERS_FILE, facts.as_json())
    atomic.write_text(unit.folder / CLUSTERS_PAGE, clusters_page.render(experiment.name, facts, clusters))
    for warning in facts.warnings():
        print(f"warning: {warning}", flush=True)
    return Result([CLUSTERS_FILE, CLUSTERS_PAGE], {"warnings": facts.warnings()})


def work(workload: Workload, key: str) -> list[Work]:
    """List the pictures that are shown."""
    pictures = images_per_cluster(workload.experiment)
    return [Work(SINGLE_READING, False, workload.experiment.cluster.experts * pictures, pictures)]


@dataclass(frozen=True)
class _ClusterSamples:
    """Samples of one cluster as the partition sees them.

    points: of the first that were drawn. typical, ambiguous: the numbers of all, the most so first.
    """

    points: Float64[np.ndarray, "m d"]
    typical: Int64[np.ndarray, " n"]
    ambiguous: Int64[np.ndarray, " n"]


def _facts(experiment: Experiment, unit: Unit, reader: CatalogReader) -> PartitionFacts:
    num_clusters, catalog = experiment.cluster.experts, run_samples.open_unit_catalog(unit, TRAIN)
    lists = [list_results(unit.inputs, cluster) for cluster in range(num_clusters)]
    sizes = np.array([entry["samples"] for entry in lists])
    drawn = [
        run_samples.sample_expert_list(unit, cluster, experiment.seed, MAX_SAMPLED) for cluster in range(num_clusters)
    ]
    partition, left_out = _partition(experiment, unit)
    seen: Sequence[_ClusterSamples | None] = [None] * num_clusters
    if partition is not None:
        seen = _measure_samples(unit, partition, run_samples.features(catalog), drawn)
    silhouettes, neighbours, sampled = _silhouettes([entry.points for entry in seen if entry])
    texts, told = _captions(reader, catalog, drawn, seen)
    clusters = [
        ClusterFacts(
            images=int(sizes[cluster]),
            share=_rounded(sizes[cluster] / sizes.sum()),
            silhouette=silhouettes[cluster] if silhouettes else None,
            neighbour=neighbours[cluster] if silhouettes else None,
            **_of_classes(experiment, unit, lists[cluster].get("class_counts")),
            words=[(word.word, _rounded(word.here), _rounded(word.elsewhere)) for word in texts[cluster]],
            captions=told[cluster],
            shown=_shown(drawn[cluster], seen[cluster]),
        )
        for cluster in range(num_clusters)
    ]
    classes = np.array([entry["class_counts"] for entry in lists]) if "class_counts" in lists[0] else None
    return PartitionFacts(
        images=int(sizes.sum()),
        clusters=clusters,
        largest_over_mean=_rounded(sizes.max() / sizes.mean()),
        effective_clusters=_rounded(measures.effective_number(sizes)),
        class_information=None if classes is None else _rounded(measures.normalised_information(classes)),
        silhouette=_rounded(np.average(silhouettes, weights=sizes)) if silhouettes else None,
        sampled=sampled,
        compared=partition.describe_points if partition is not None else "",
        left_out=left_out,
        remedy=experiment.cluster.clustering.remedy(num_clusters),
    )


def _partition(experiment: Experiment, unit: Unit) -> tuple[FeaturePartition | None, str]:
    """Load the partition, where it compares features; else return the reason for which nothing is measured by it."""
    own = experiment.cluster.clustering
    if not own.needs_features:
        return None, f"the clustering {own.name} looks at no features"
    if experiment.cluster.experts < 2:
        return None, "there is one cluster only"
    clustering = variants.create(Clustering, paths.make_absolute(own, unit.run.root))
    partition = clustering.read(unit.input(CLUSTER, PARTITION), experiment)
    if isinstance(partition, FeaturePartition):
        return partition, ""
    return None, f"the partition of {own.name} goes by more than features"


def _measure_samples(
    unit: Unit, partition: FeaturePartition, features: Column, drawn: Sequence[SampleNumbers]
) -> list[_ClusterSamples]:
    """Look at the features of the samples that were drawn of every cluster, block by block."""
    kept = max(MIN_IN_SILHOUETTES, MAX_IN_SILHOUETTES // len(drawn))
    seen = []
    for cluster, numbers in enumerate(drawn):
        blocks = list(split_into_blocks(numbers, ROWS_PER_BLOCK))
        mean = sum(partition.points(features.gather(block)).sum(0) for block in blocks) / len(numbers)
        spread, margin = [], []
        for block in blocks:
            unit.stop_if_requested()
            rows = features.gather(block)
            distances = np.sqrt(partition.distances_features(rows))
            spread.append(np.square(partition.points(rows) - mean).sum(1))
            margin.append(np.delete(distances, cluster, axis=1).min(1) - distances[:, cluster])
        # By values, the smallest first, of equal ones by number; digits in which machines differ do not count.
        orders = (np.lexsort((numbers, np.concatenate(values).round(DIGITS))) for values in (spread, margin))
        typical, ambiguous = (numbers[order] for order in orders)
        seen.append(_ClusterSamples(partition.points(features.gather(numbers[:kept])), typical, ambiguous))
        unit.heartbeat.beat(cluster + 1, len(drawn))
    return seen


def _silhouettes(points: list[Float64[np.ndarray, "m d"]]) -> tuple[list[float], list[int], int]:
    """Return every cluster's mean silhouette and most frequent neighbour, and the number of samples; or nothing."""
    if not points:
        return [], [], 0
    clusters = np.repeat(np.arange(len(points)), [len(own) for own in points])
    values, neighbours = measures.silhouettes(np.concatenate(points), clusters, len(points))
    means = [_rounded(values[clusters == cluster].mean()) for cluster in range(len(points))]
    nearest = [int(np.bincount(neighbours[clusters == cluster]).argmax()) for cluster in range(len(points))]
    return means, nearest, len(clusters)


def _captions(
    reader: CatalogReader, catalog: Catalog, drawn: Sequence[SampleNumbers], seen: Sequence[_ClusterSamples | None]
) -> tuple[list[list[cluster_keywords.Keyword]], list[list[str]]]:
    """Return typical words and a few captions of every cluster; nothing for samples without captions."""
    if not catalog.has("caption"):
        return [[] for _ in drawn], [[] for _ in drawn]
    # Drawings of one thing may share a caption.
    chosen = [
        (numbers if entry is None else entry.typical)[:SELECTED_IMAGES]
        for numbers, entry in zip(drawn, seen, strict=True)
    ]
    told = [list(dict.fromkeys(map(_cut, reader.captions(numbers))))[:MAX_CAPTIONS] for numbers in chosen]
    return cluster_keywords.find_keywords([reader.captions(numbers) for numbers in drawn], MAX_WORDS), told


def _cut(caption: str) -> str:
    """Cut a caption to one or two lines; bytes that are not UTF-8 become question marks."""
    text = " ".join(caption.encode(errors="replace").decode().split())
    return text if len(text) <= MAX_LETTERS else f"{text[: MAX_LETTERS - 3]}..."


def _of_classes(experiment: Experiment, unit: Unit, counts: list[int] | None) -> dict[str, Any]:
    if counts is None:
        return {}
    names, total = class_names(experiment, unit.inputs), sum(counts)
    frequent = Counter(dict(enumerate(counts))).most_common(MAX_CLASSES)
    classes = [(names[label], _rounded(count / total)) for label, count in frequent if count >= MIN_SHARE * total]
    return {"class_entropy": _rounded(measures.entropy(np.array(counts))), "classes": classes}


def _shown(drawn: SampleNumbers, seen: _ClusterSamples | None) -> dict[str, list[int]]:
    """List the samples that are shown, by kind."""
    shown = {RANDOM: drawn[:RANDOM_IMAGES].tolist()}
    if seen is None:
        return shown
    chosen = {TYPICAL: seen.typical, AMBIGUOUS: seen.ambiguous}
    return {kind: numbers[:SELECTED_IMAGES].tolist() for kind, numbers in chosen.items()} | shown


def _rounded(value: float) -> float:
    return round(float(value), DIGITS)
