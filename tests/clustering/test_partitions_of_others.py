"""Partitions that fit neither the experiment's clusters nor its features are refused before anything is computed."""

import h5py
import numpy as np
import pytest

from hpcddm.clustering.base import Clustering
from hpcddm.config import variants
from hpcddm.errors import UserError
from tests.helpers import tiny
from tests.shape_checker import unchecked

MEANS = {"mean": np.zeros(49), "centroids": np.zeros((3, 49)), "coarse": np.array([0, 1, 1])}
KMEANS, CLASSES = {"name": "kmeans", "fine_clusters": 3}, {"name": "labels", "groups": [[0, 1], [2, 3]]}


def read(tmp_path, clustering, arrays):
    """Read a partition of these arrays into two clusters of features in 49 dimensions."""
    experiment = tiny(tmp_path, cluster__experts=2, cluster__clustering=clustering, encode__encoder={"name": "pixels"})
    assert experiment.encode.encoder.dimensions(experiment.data) == 49
    with h5py.File(tmp_path / "partition.h5", "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values)
    return variants.create(Clustering, experiment.cluster.clustering).read(tmp_path / "partition.h5", experiment)


FITTING = {
    "kmeans": (KMEANS, MEANS),
    "random": ({"name": "random"}, {"seed": 1, "num_clusters": 2}),
    "classes": (CLASSES, {"clusters": np.array([0, 0, 1, 1])}),
}
FILE = {"name": "file", "table": {"file": "table.csv"}}
UNFIT = {
    "too many clusters": (KMEANS, MEANS | {"coarse": np.array([0, 1, 2])}),
    "a cluster below zero": (KMEANS, MEANS | {"coarse": np.array([0, 1, -1])}),
    "clusters that are no numbers": (KMEANS, MEANS | {"coarse": np.array([0.0, 1.0, 1.0])}),
    "too few clusters of centroids": (KMEANS, MEANS | {"coarse": np.array([0, 1])}),
    "other dimensions": (KMEANS, MEANS | {"centroids": np.zeros((3, 48))}),
    "another mean": (KMEANS, MEANS | {"mean": np.zeros(1)}),
    "other prices": (KMEANS, MEANS | {"prices": np.zeros(2)}),
    "no centroids": (KMEANS, {"mean": np.zeros(49), "centroids": np.zeros((0, 49)), "coarse": np.zeros(0, int)}),
    "an array that is missing": (KMEANS, {"mean": np.zeros(49)}),
    "another number at random": ({"name": "random"}, {"seed": 1, "num_clusters": 3}),
    "a list at random": ({"name": "random"}, {"seed": [1, 2], "num_clusters": 2}),
    "a class in no cluster": (CLASSES, {"clusters": np.array([0, 0, 1, 2])}),
    "a cluster without a centroid": (KMEANS, MEANS | {"coarse": np.array([1, 1, 1])}),
    "a cluster without a class": (CLASSES, {"clusters": np.zeros(4, int)}),
    "a list of clusters that is shorter than the groups": (CLASSES, {"clusters": np.array([0, 1])}),
    "centroids that are whole numbers": (KMEANS, MEANS | {"centroids": np.zeros((3, 49), int)}),
    "centroids too large for float32": (KMEANS, MEANS | {"centroids": np.full((3, 49), 1e20)}),
    "a mean too large for float32": (KMEANS, MEANS | {"mean": np.full(49, 1e300)}),
    "prices too large for float32": (KMEANS, MEANS | {"penalties": np.full(3, -1e39)}),
    "an array more": (KMEANS, MEANS | {"metric": np.zeros(1)}),
    "half a cluster at random": ({"name": "random"}, {"seed": 1, "num_clusters": 2.5}),
    "hashes that do not ascend": (FILE, {"hashes": np.array([2, 1], np.uint64), "clusters": np.array([0, 1])}),
    "a name more": (FILE, {"hashes": np.array([1, 2], np.uint64), "clusters": np.array([0, 1]), "first_key": 3}),
    "arrays of another clustering": (CLASSES, MEANS),
}


@pytest.mark.parametrize("case", FITTING)
def test_a_partition_that_fits_is_read(tmp_path, case):
    assert read(tmp_path, *FITTING[case]).arrays().keys() == FITTING[case][1].keys()


@pytest.mark.parametrize("case", UNFIT)
def test_a_partition_that_does_not_fit_is_one_line(tmp_path, case):
    complaint = r"partition.h5: not a partition of this clustering \(.*--redo cluster"
    with unchecked(), pytest.raises(UserError, match=complaint):
        read(tmp_path, *UNFIT[case])
