"""What the stage cluster_report says of real images in clusters of every kind."""

import json

import numpy as np
import pytest

from hpcddm.clustering.base import Clustering
from hpcddm.clustering.partition import read_arrays
from hpcddm.config import variants
from hpcddm.data import run_samples
from hpcddm.evaluation.report.cluster_facts import PartitionFacts
from hpcddm.files import checked_reads
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.unit_keys import CATALOG, CLUSTER_REPORT, EXPERT_LISTS
from hpcddm.stages.data import cluster_report_job
from tests.clustering.test_measures import by_definition
from tests.evaluation.report.test_page import Page
from tests.stages.routes import Bench, write_images

KMEANS = {"name": "kmeans", "fine_clusters": 16, "iterations": 10, "restarts": 1, "max_share": None}
GROUPS = [[9, 7, 5], [0, 2, 4, 6], [1, 3], [8]]
STAGES = ("encode", "cluster", "assign", "expert_lists", "cluster_report")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """A run of the first 600 images of Fashion-MNIST, up to its catalog."""
    folder = tmp_path_factory.mktemp("runs")
    write_images(folder / "images", 600, 100)
    bench = Bench(folder, "run")
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage in ("shard", "catalog")))
    return bench


def inspected(bench, **changes):
    """Make all that comes behind the catalog; return the facts, the content of their file and the page."""
    bench.settings = bench.experiment(**changes)
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage in STAGES))
    folder = bench.run.unit(CLUSTER_REPORT)
    content = json.loads((folder / "clusters.json").read_text())
    facts = checked_reads.read_required_json(folder / "clusters.json", PartitionFacts)
    return facts, content, Page((folder / "clusters.html").read_text())


def looked_at(bench):
    """Points, features, clusters and partition, from the run's own files."""
    unit = bench.unit(CLUSTER_REPORT)
    catalog = run_samples.open_unit_catalog(unit, "train")
    clustering = variants.create(Clustering, bench.settings.cluster.clustering)
    partition = clustering.load(read_arrays(bench.run.unit("cluster/all") / "partition.h5"))
    features = run_samples.features(catalog).gather(range(600))
    clusters = run_samples.clusters(catalog).gather(range(600)).astype(np.int64)
    return partition.points(features), features, clusters, partition


def test_clusters_of_features_are_measured_by_their_definitions(bench):
    facts, content, page = inspected(bench, cluster__clustering=KMEANS, cluster__experts=4)
    points, features, clusters, partition = looked_at(bench)
    sizes = np.bincount(clusters)
    assert [cluster.images for cluster in facts.clusters] == sizes.tolist() and facts.images == 600
    assert facts.largest_over_mean == pytest.approx(sizes.max() / 150, abs=1e-6)
    # All samples are fewer than are looked at.
    values, neighbours = (np.array(found) for found in by_definition(points, clusters))
    assert facts.sampled == 600 and facts.silhouette == pytest.approx(values.mean(), abs=2e-6)
    distances = np.sqrt(partition.distances_features(features))
    for number, cluster in enumerate(facts.clusters):
        own = np.flatnonzero(clusters == number)
        assert cluster.silhouette == pytest.approx(values[own].mean(), abs=1e-6)
        assert cluster.neighbour == np.bincount(neighbours[own]).argmax() != number
        spread = np.linalg.norm(points[own] - points[own].mean(0), axis=1)
        assert cluster.shown["typical"] == own[spread.argsort()[:16]].tolist()
        margins = np.delete(distances[own], number, axis=1).min(1) - distances[own, number]
        assert cluster.shown["ambiguous"] == own[margins.argsort()[:16]].tolist()
        assert set(cluster.shown["random"]) <= set(own.tolist()) and len(cluster.shown["random"]) == 24
    assert facts.compared == "features, centred and scaled to length one" and not facts.left_out
    assert len(page.all("img")) == 12 and "max_share: 0.375" in page.text
    assert content["warnings"] == manifest.read(bench.run.unit(CLUSTER_REPORT)).results["warnings"] == facts.warnings()


def test_classes_are_counted_in_all_of_a_cluster(bench):
    facts, _, page = inspected(bench, cluster__clustering={"name": "labels", "groups": GROUPS})
    shares = [dict(cluster.classes) for cluster in facts.clusters]
    assert [set(map(int, share)) for share in shares] == [set(group) for group in GROUPS]
    assert all(sum(share.values()) == pytest.approx(1, abs=1e-5) for share in shares)
    assert facts.clusters[3].class_entropy == 0
    assert facts.clusters[0].class_entropy == pytest.approx(np.log(3), abs=0.02)
    labels = run_samples.open_reader(bench.unit(CLUSTER_REPORT), "train").labels(range(600)).numpy()
    group = np.array([next(index for index, group in enumerate(GROUPS) if label in group) for label in labels])
    entropies = [-sum(p * np.log(p) for p in np.bincount(of) / 600 if p) for of in (group, labels)]
    # Clusters that are functions of the class share all of their own entropy with it.
    assert facts.class_information == pytest.approx(2 * entropies[0] / sum(entropies), abs=1e-6)
    assert "groups: other classes together" in page.text


@pytest.mark.parametrize("name", ["random", "labels", "file"])
def test_clusters_without_features_show_what_there_is(bench, tmp_path, name):
    table, rows = tmp_path / "clusters.csv", ["key,cluster"]
    for split in ("train", "heldout"):
        reader = run_samples.open_reader(bench.unit("cluster/all"), split)
        rows += [f"{key},{number % 5 // 2}" for number, key in enumerate(reader.keys(range(len(reader))))]
    table.write_text("\n".join(rows))
    more = {"random": {}, "labels": {"groups": GROUPS}, "file": {"table": {"file": str(table)}}}[name]
    experts = {"cluster__experts": 3, "experts__training__batch": 48} if name == "file" else {}
    facts, content, page = inspected(bench, cluster__clustering={"name": name} | more, **experts)
    assert f"the clustering {name} looks at no features" in page.text and facts.silhouette is None
    assert all(list(cluster.shown) == ["random"] and cluster.silhouette is None for cluster in facts.clusters)
    assert len(page.all("img")) == len(facts.clusters)
    if name == "file":
        assert [cluster.images for cluster in facts.clusters] == [240, 240, 120]
        assert content["warnings"][0].startswith("Clusters 0, 1, 2 are starving: 120 to 240 images")
        assert "table: a file with other clusters" in page.text


def test_of_large_clusters_only_some_samples_are_looked_at(bench, monkeypatch):
    inspected(bench, cluster__clustering=KMEANS)
    monkeypatch.setattr(cluster_report_job, "MAX_SAMPLED", 60)
    monkeypatch.setattr(cluster_report_job, "MAX_IN_SILHOUETTES", 160)
    monkeypatch.setattr(cluster_report_job, "ROWS_PER_BLOCK", 7)
    asked = []
    gather = run_samples.features(run_samples.open_unit_catalog(bench.unit(CLUSTER_REPORT), "train")).gather

    class Counting:
        def gather(self, numbers):
            asked.append(len(numbers))
            return gather(numbers)

    monkeypatch.setattr(run_samples, "features", lambda own: Counting())
    bench.make(CLUSTER_REPORT)
    content = json.loads((bench.run.unit(CLUSTER_REPORT) / "clusters.json").read_text())
    assert content["sampled"] == 160 and max(asked) == 40 and sum(asked) == 4 * (60 + 60 + 40)
    assert len(content["clusters"][0]["shown"]["typical"]) == 16


def test_captions_tell_clusters_apart(adopted_run):
    bench = adopted_run()
    bench.make_data()
    bench.make(CLUSTER_REPORT)
    facts = checked_reads.read_required_json(bench.run.unit(CLUSTER_REPORT) / "clusters.json", PartitionFacts)
    reader = run_samples.open_reader(bench.unit(CLUSTER_REPORT), "train")
    for cluster in facts.clusters:
        assert cluster.class_entropy is None and not cluster.classes
        assert cluster.captions and 0 < len(cluster.words) <= 12
        assert cluster.captions[0] == " ".join(reader.captions(cluster.shown["typical"][:1])[0].split())
        assert all(1 >= here > elsewhere >= 0 for _, here, elsewhere in cluster.words)
    page = Page((bench.run.unit(CLUSTER_REPORT) / "clusters.html").read_text()).text
    assert "of captions" in page and "Classes" not in page
    assert facts.class_information is None


def test_it_reads_the_catalog_lists_partition_and_features_of_the_training_images_alone(bench):
    bench.settings = bench.experiment(cluster__clustering=KMEANS)
    (unit,) = [unit for unit in plan_units(bench.settings) if unit.key == CLUSTER_REPORT]
    assert unit.requires == [CATALOG, "encode/train-000", "encode/train-001", "cluster/all", EXPERT_LISTS]
    bench.settings = bench.experiment(cluster__clustering={"name": "random"})
    (unit,) = [unit for unit in plan_units(bench.settings) if unit.key == CLUSTER_REPORT]
    assert unit.requires == [CATALOG, "cluster/all", EXPERT_LISTS] and unit.fingerprint_settings == {"seed": 0}
    readers = [other.key for other in plan_units(bench.settings) if CLUSTER_REPORT in other.inputs]
    assert readers == ["report/all"], "a training waits for it"
