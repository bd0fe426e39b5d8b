"""Clusterings that look at no features, by the data stages on real images."""

import numpy as np
import pytest

from hpcddm.clustering.labels import ClusterOfClass
from hpcddm.clustering.random import RandomPartition
from hpcddm.clustering.samples import Samples
from hpcddm.data import run_samples
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import ConfigError, UserError
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.unit_keys import EXPERT_LISTS
from tests.helpers import tiny
from tests.stages.routes import Bench, write_images

RANDOM = {"cluster__clustering": {"name": "random"}}
UNKNOWN_CLASSES = {"data__num_classes": None, "evaluators__classifier": None, "data__condition": {"name": "none"}}
GROUPS = [[9, 7, 5], [0, 2, 4, 6], [1, 3], [8]]


@pytest.fixture(scope="module")
def benches(tmp_path_factory):
    """Runs of the first 1,000 and 200 images of Fashion-MNIST in so many tars, up to their catalog."""
    folder = tmp_path_factory.mktemp("runs")
    write_images(folder / "images", 1000, 200)
    benches = {shards: Bench(folder, f"run-{shards}", **RANDOM, data__shards=shards) for shards in (2, 5)}
    for bench in benches.values():
        bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage in ("shard", "catalog")))
    return benches


@pytest.fixture
def made(benches):
    """Make clusters and lists, with a clustering and other changes."""

    def make(shards=2, **changes):
        bench = benches[shards]
        bench.settings = bench.experiment(data__shards=shards, **changes)
        stages = ("cluster", "assign", "expert_lists")
        bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage in stages))
        return bench

    return make


def clusters_and_labels(bench, split):
    catalog = open_catalog(bench.run, split)
    numbers = range(len(catalog))
    return run_samples.clusters(catalog).gather(numbers).astype(int), catalog.column("label").gather(numbers)


def test_random_clusters_are_of_equal_size_and_follow_from_the_seed_and_not_from_the_ranges(made):
    runs = {}
    for shards, seed in ((2, 0), (5, 0), (2, 1)):
        bench = made(shards, **RANDOM, seed=seed)
        assert manifest.read(bench.run.unit(EXPERT_LISTS)).results["sizes"] == [250] * 4
        runs[shards, seed] = [clusters_and_labels(bench, split) for split in ("train", "heldout")]
    for (clusters, labels), (others, _), (reseeded, _) in zip(*runs.values(), strict=True):
        assert np.array_equal(clusters, others)
        assert (clusters == reseeded).mean() == pytest.approx(1 / 4, abs=0.09)
        assert np.ptp(np.bincount(clusters)) <= 1
        # Every cluster has the classes of all, up to chance.
        table = np.zeros((4, 10))
        np.add.at(table, (clusters, labels), 1)
        expected = np.bincount(labels) / 4
        assert ((table - expected) ** 2 / expected).sum() < 60


def test_a_random_cluster_does_not_depend_on_who_asks(made):
    catalog = open_catalog(made(**RANDOM).run, "heldout")
    partition, split = RandomPartition(seed=3, num_clusters=7), Samples(catalog)
    whole, some = partition.assign(split, range(200)), np.array([199, 3, 20])
    assert np.array_equal(partition.assign(split, some), whole[some])
    assert sorted(np.bincount(whole)) == [28] * 3 + [29] * 4


@pytest.mark.parametrize("changes", [{}, UNKNOWN_CLASSES], ids=["known", "unknown to networks"])
def test_groups_of_classes_are_clusters_even_of_classes_that_no_network_knows(made, changes):
    bench = made(cluster__clustering={"name": "labels", "groups": GROUPS}, **changes)
    for split in ("train", "heldout"):
        clusters, labels = clusters_and_labels(bench, split)
        assert all(label in GROUPS[cluster] for cluster, label in zip(clusters, labels, strict=True))


def test_a_class_below_zero_is_in_no_group():
    class Given(Samples):
        def __init__(self):
            pass

        def labels(self, numbers):
            return np.array([0, -1, 2])

        def keys(self, numbers):
            return [f"sample {number}" for number in numbers]

    with pytest.raises(UserError, match="sample 5: no group of cluster.clustering has class -1"):
        ClusterOfClass(np.array([0, 1, 1])).assign(Given(), np.array([4, 5, 6]))


@pytest.mark.parametrize(
    "groups, changes, complaint",
    [
        (None, UNKNOWN_CLASSES, "set data.num_classes, or groups"),
        (None, {}, "4 classes for 2 experts; set cluster.experts: 4, or groups"),
        ([[0, 1, 2, 3]], {}, "groups: 1 groups for 2 experts"),
        ([[0, 1, 2, 3], []], {}, "groups: group 1 has no class"),
        ([[0, 1], [3, 4]], {}, "groups: class 2 is listed 0 times, must be once"),
        ([[0, 1, 2], [3, 4]], {}, "groups: 4 is not a class; valid classes are 0 to 3"),
        ([[0, 1, 2], [3, 2]], {}, "groups: class 2 is listed 2 times, must be once"),
    ],
)
def test_groups_that_are_no_partition_of_the_classes_are_refused(tmp_path, groups, changes, complaint):
    with pytest.raises(ConfigError, match=f"cluster.clustering: {complaint}"):
        tiny(tmp_path, cluster__clustering={"name": "labels", "groups": groups}, **changes)
