"""Stage inspect: clusters.json and a page of what is in the clusters, from samples of them."""

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
from hpcddm.data import samples
from hpcddm.data.catalog import Catalog, blocks_of
from hpcddm.data.columns import Column
from hpcddm.data.reader import TarReader
from hpcddm.evaluation.report import clusters_page
from hpcddm.evaluation.report.cluster_facts import AMBIGUOUS, RANDOM, TYPICAL, ClusterFacts, Facts
from hpcddm.evaluation.report.content import Cluster
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import CLUSTERS_FILE, CLUSTERS_PAGE, PARTITION
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.stored_results import class_names, list_results
from hpcddm.runs.unit_keys import CLUSTER
from hpcddm.stages.data.inspect import CHOSEN_PICTURES, RANDOM_PICTURES, pictures_per_cluster
from hpcddm.stages.workload import SINGLE_READING, Work, Workload

MOST_SAMPLED, MOST_IN_SILHOUETTES = 4096, 4096
"""Largest number of samples that are looked at: of each cluster; and, of all together, in the silhouettes."""
LEAST_IN_SILHOUETTES = 32
"""Samples of each cluster in the silhouettes, however many clusters there are."""
ROWS_PER_BLOCK = 512
"""Samples whose features are in memory together."""
MOST_CLASSES, MOST_WORDS, MOST_CAPTIONS, MOST_LETTERS = 6, 12, 4, 160
"""What is said of each cluster at most, and letters of a caption."""
LEAST_SHARE = 0.005
"""Share of a class that is worth a word."""
DIGITS = 6
"""Decimals of figures in the file: fewer than those in which machines differ."""
Drawn = Int64[np.ndarray, " n"]
"""Numbers of the samples that were drawn of one cluster."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Measure the clusters, and write clusters.json and the page."""
    reader = samples.reader(unit, TRAIN)
    facts = _facts(settings, unit, reader)
    clusters = [
        Cluster.read(index, cluster.images, cluster.shown, reader.images)
        for index, cluster in enumerate(facts.clusters)
    ]
    atomic.write_json(unit.folder / CLUSTERS_FILE, facts.as_json())
    clusters_page.write(settings.name, facts, clusters, unit.folder / CLUSTERS_PAGE)
    for warning in facts.warnings():
        print(f"warning: {warning}", flush=True)
    return Result([CLUSTERS_FILE, CLUSTERS_PAGE], {"warnings": facts.warnings()})


def work(workload: Workload, key: str) -> list[Work]:
    """List the pictures that are shown."""
    pictures = pictures_per_cluster(workload.settings)
    return [Work(SINGLE_READING, False, workload.settings.cluster.experts * pictures, pictures)]


@dataclass(frozen=True)
class _Seen:
    """Samples of one cluster as the partition sees them.

    points: of the first that were drawn. typical, ambiguous: the numbers of all, the most so first.
    """

    points: Float64[np.ndarray, "m d"]
    typical: Int64[np.ndarray, " n"]
    ambiguous: Int64[np.ndarray, " n"]


def _facts(settings: Experiment, unit: Unit, reader: TarReader) -> Facts:
    num_clusters, catalog = settings.cluster.experts, samples.catalog(unit, TRAIN)
    lists = [list_results(unit.inputs, cluster) for cluster in range(num_clusters)]
    sizes = np.array([entry["samples"] for entry in lists])
    drawn = [samples.drawn_from(unit, cluster, settings.seed, MOST_SAMPLED) for cluster in range(num_clusters)]
    partition, left_out = _partition(settings, unit)
    seen: Sequence[_Seen | None] = [None] * num_clusters
    if partition is not None:
        seen = _look(unit, partition, samples.features(catalog), drawn)
    silhouettes, neighbours, sampled = _silhouettes([entry.points for entry in seen if entry])
    texts, told = _captions(reader, catalog, drawn, seen)
    clusters = [
        ClusterFacts(
            images=int(sizes[cluster]),
            share=_rounded(sizes[cluster] / sizes.sum()),
            silhouette=silhouettes[cluster] if silhouettes else None,
            neighbour=neighbours[cluster] if silhouettes else None,
            **_of_classes(settings, unit, lists[cluster].get("class_counts")),
            words=[(word.word, _rounded(word.here), _rounded(word.elsewhere)) for word in texts[cluster]],
            captions=told[cluster],
            shown=_shown(drawn[cluster], seen[cluster]),
        )
        for cluster in range(num_clusters)
    ]
    has_classes = "class_counts" in lists[0]
    return Facts(
        images=int(sizes.sum()),
        clusters=clusters,
        largest_over_mean=_rounded(sizes.max() / sizes.mean()),
        effective_clusters=_rounded(measures.effective_number(sizes)),
        class_information=_rounded(
            measures.normalised_information(np.array([entry["class_counts"] for entry in lists]))
        )
        if has_classes
        else None,
        silhouette=_rounded(np.average(silhouettes, weights=sizes)) if silhouettes else None,
        sampled=sampled,
        compared=partition.points_text if partition is not None else "",
        left_out=left_out,
        remedy=settings.cluster.clustering.remedy(num_clusters),
    )


def _partition(settings: Experiment, unit: Unit) -> tuple[FeaturePartition | None, str]:
    """Load the partition, where it compares features; else return the reason for which nothing is measured by it."""
    own = settings.cluster.clustering
    if not own.needs_features:
        return None, f"the clustering {own.name} looks at no features"
    if settings.cluster.experts < 2:
        return None, "there is one cluster only"
    clustering = variants.create(Clustering, paths.located(own, unit.run.root))
    partition = clustering.read(unit.input(CLUSTER, PARTITION), settings)
    if isinstance(partition, FeaturePartition):
        return partition, ""
    return None, f"the partition of {own.name} goes by more than features"


def _look(unit: Unit, partition: FeaturePartition, features: Column, drawn: Sequence[Drawn]) -> list[_Seen]:
    """Look at the features of the samples that were drawn of every cluster, block by block."""
    kept = max(LEAST_IN_SILHOUETTES, MOST_IN_SILHOUETTES // len(drawn))
    seen = []
    for cluster, numbers in enumerate(drawn):
        blocks = list(blocks_of(numbers, ROWS_PER_BLOCK))
        mean = sum(partition.points(features.gather(block)).sum(0) for block in blocks) / len(numbers)
        spread, margin = [], []
        for block in blocks:
            unit.stop_if_requested()
            rows = features.gather(block)
            distances = np.sqrt(partition.distances_features(rows))
            spread.append(np.square(partition.points(rows) - mean).sum(1))
            margin.append(np.delete(distances, cluster, axis=1).min(1) - distances[:, cluster])
        typical, ambiguous = (numbers[_order(np.concatenate(values), numbers)] for values in (spread, margin))
        seen.append(_Seen(partition.points(features.gather(numbers[:kept])), typical, ambiguous))
        unit.heartbeat.beat(cluster + 1, len(drawn))
    return seen


def _order(values: Float64[np.ndarray, " n"], numbers: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Sort by values, the smallest first, of equal ones by number; digits in which machines differ do not count."""
    return np.lexsort((numbers, values.round(DIGITS)))


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
    reader: TarReader, catalog: Catalog, drawn: Sequence[Drawn], seen: Sequence[_Seen | None]
) -> tuple[list[list[cluster_keywords.Word]], list[list[str]]]:
    """Return typical words and a few captions of every cluster; nothing for samples without captions."""
    if not catalog.has("caption"):
        return [[] for _ in drawn], [[] for _ in drawn]
    # Drawings of one thing may share a caption.
    chosen = [
        (numbers if entry is None else entry.typical)[:CHOSEN_PICTURES]
        for numbers, entry in zip(drawn, seen, strict=True)
    ]
    told = [list(dict.fromkeys(map(_cut, reader.captions(numbers))))[:MOST_CAPTIONS] for numbers in chosen]
    return cluster_keywords.typical_words([reader.captions(numbers) for numbers in drawn], MOST_WORDS), told


def _cut(caption: str) -> str:
    """Cut a caption to what fits a line or two; bytes that are no UTF-8 become question marks."""
    text = " ".join(caption.encode(errors="replace").decode().split())
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."


def _of_classes(settings: Experiment, unit: Unit, counts: list[int] | None) -> dict[str, Any]:
    if counts is None:
        return {}
    names, total = class_names(settings, unit.inputs), sum(counts)
    frequent = Counter(dict(enumerate(counts))).most_common(MOST_CLASSES)
    classes = [(names[label], _rounded(count / total)) for label, count in frequent if count >= LEAST_SHARE * total]
    return {"class_entropy": _rounded(measures.entropy(np.array(counts))), "classes": classes}


def _shown(drawn: Drawn, seen: _Seen | None) -> dict[str, list[int]]:
    """List the samples that are shown, by kind."""
    shown = {RANDOM: drawn[:RANDOM_PICTURES].tolist()}
    if seen is None:
        return shown
    chosen = {TYPICAL: seen.typical, AMBIGUOUS: seen.ambiguous}
    return {kind: numbers[:CHOSEN_PICTURES].tolist() for kind, numbers in chosen.items()} | shown


def _rounded(value: float) -> float:
    return round(float(value), DIGITS)
