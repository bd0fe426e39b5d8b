"""Measures of partitions against their definitions, and against cases whose values are known."""

import math

import numpy as np
import pytest

from hpcddm.clustering import measures
from hpcddm.clustering.cluster_keywords import Keyword, find_keywords


def planted(sizes, dimensions=3, apart=4.0):
    """Points around the unit vectors, one for each cluster, in random order."""
    random = np.random.default_rng(0)
    clusters = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return apart * np.eye(len(sizes), dimensions)[clusters] + random.normal(size=(len(clusters), dimensions)), clusters


def by_definition(points, clusters):
    """The silhouettes and neighbours as Rousseeuw defines them, point by point."""
    values, neighbours = [], []
    for place, point in enumerate(points):
        distances = np.linalg.norm(points - point, axis=1)
        others = np.arange(len(points)) != place
        found = {int(cluster): distances[others & (clusters == cluster)] for cluster in np.unique(clusters)}
        means = {cluster: own.mean() for cluster, own in found.items() if len(own)}
        own = means.pop(int(clusters[place]), None)
        nearest = min(means, key=means.__getitem__)
        values.append(0.0 if own is None else (means[nearest] - own) / max(own, means[nearest]))
        neighbours.append(nearest)
    return values, neighbours


@pytest.mark.parametrize("sizes", [(40, 25), (300, 5, 60), (30, 1, 20)])
def test_silhouettes_are_those_of_the_definition(sizes):
    points, clusters = planted(sizes)
    values, neighbours = measures.silhouettes(points, clusters, len(sizes))
    expected, nearest = by_definition(points, clusters)
    assert values == pytest.approx(expected, abs=1e-12) and neighbours.tolist() == nearest


def test_silhouettes_tell_clusters_that_are_there_from_those_that_are_not():
    points, clusters = planted((200, 200), apart=20.0)
    assert measures.silhouettes(points, clusters, 2)[0].mean() > 0.85
    shuffled = np.random.default_rng(1).permutation(clusters)
    assert abs(measures.silhouettes(points, shuffled, 2)[0].mean()) < 0.05
    both = np.repeat([[0.0, 0], [1, 1]], 4, axis=0)
    assert measures.silhouettes(both, np.arange(8) // 4, 2)[0].tolist() == [1.0] * 8
    # All at one place: no cluster is nearer than another.
    assert measures.silhouettes(np.zeros((8, 2)), np.arange(8) % 2, 2)[0].tolist() == [0.0] * 8


def test_empty_clusters_are_nobodys_neighbours_and_one_cluster_has_no_silhouette():
    points, clusters = planted((30, 30))
    with_gap = measures.silhouettes(points, np.where(clusters == 1, 2, 0), 4)
    assert with_gap[0] == pytest.approx(measures.silhouettes(points, clusters, 2)[0])
    assert set(with_gap[1].tolist()) == {0, 2}
    with pytest.raises(ValueError, match="points of two clusters"):
        measures.silhouettes(points, np.zeros(60, dtype=np.int64), 2)


def test_the_effective_number_counts_equal_clusters():
    assert measures.effective_number(np.array([7, 7, 7, 7])) == pytest.approx(4)
    assert measures.effective_number(np.array([100, 0, 0])) == 1
    assert measures.effective_number(np.array([2, 1, 1])) == pytest.approx(2 * math.sqrt(2))
    assert measures.entropy(np.array([1, 1])) == pytest.approx(math.log(2))


def test_information_of_clusters_about_classes():
    assert measures.normalised_information(np.diag([3, 5, 2])) == pytest.approx(1)
    assert measures.normalised_information(np.outer([3, 5], [2, 4, 1])) == pytest.approx(0, abs=1e-12)
    # Half a class in each of two clusters: ln 2 of ln 2 + ln 4, twice.
    assert measures.normalised_information(np.array([[1, 1, 0, 0], [0, 0, 1, 1]])) == pytest.approx(2 / 3)
    assert measures.normalised_information(np.array([[4]])) == 1


def test_typical_words_are_those_that_the_others_lack():
    hats = ["A red hat", "a blue HAT", "the hat, a hat"]
    shoes = ["a red shoe", "a photo of a shoe", "the shoe"]
    (first, *_), (second, *_) = find_keywords([hats, shoes], 5)
    assert first == Keyword("hat", 1.0, 0.0) and second == Keyword("shoe", 1.0, 0.0)
    said = [word.word for word in find_keywords([hats, shoes], 5)[0]]
    # In both, or shorter than two letters.
    assert "red" not in said and "the" not in said and "a" not in said and "blue" in said
    assert [len(words) for words in find_keywords([hats, shoes], 1)] == [1, 1]


def test_words_of_any_alphabet_and_captions_without_any():
    words, _ = find_keywords([["\u041a\u043e\u0442 42"], ["", "\udc80 x"]], 3)
    assert [word.word for word in words] == ["\u043a\u043e\u0442"]
    assert find_keywords([["only one cluster"]], 3) == [[]]
