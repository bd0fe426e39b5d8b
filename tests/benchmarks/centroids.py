"""Tell training images from held-out ones by the partition alone: python -m tests.benchmarks.centroids RUN ...

An attacker has the centroids, as a contract carries them, and the features of images. A centroid is the mean of the
training images nearest to it, so these are nearer to it than others are: the score of an image is minus its squared
distance from the nearest centroid. Runs have a partition by centroids, such as `kmeans`.
"""

from pathlib import Path

import numpy as np

from hpcddm.clustering.base import Clustering
from hpcddm.clustering.nearest_centroid import NearestCentroid
from hpcddm.config import variants
from hpcddm.data.run_samples import features, open_catalog
from hpcddm.runs.files import PARTITION
from hpcddm.runs.ranges import SPLITS
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import CLUSTER
from tests.benchmarks import roc
from tests.benchmarks.tables import given_runs, print_header, print_row


def row(root: Path) -> tuple[object, ...]:
    """Return the row of a run: its name, images, centroids, those of one image, and what the attack finds."""
    run, experiment = RunDir(root), stored_experiment(RunDir(root))
    partition = variants.create(Clustering, experiment.cluster.clustering).read(
        run.output(CLUSTER, PARTITION), experiment
    )
    if not isinstance(partition, NearestCentroid):
        raise SystemExit(f"{root}: its clusters have no centroids")
    centroids, scores = partition.centroids.astype(np.float64), []
    for split in SPLITS:
        catalog = open_catalog(run, split)
        points = partition.points(features(catalog).gather(range(len(catalog))))
        distances = (points**2).sum(1)[:, None] + (centroids**2).sum(1) - 2 * points @ centroids.T
        scores.append(-distances.min(1))
        if split == SPLITS[0]:
            sizes = np.bincount(distances.argmin(1), minlength=len(centroids))
    counts = f"{len(scores[0]):,}, {len(scores[1]):,}", f"{len(centroids)}, {int((sizes == 1).sum())}"
    return root.name, *counts, roc.area(*scores), roc.found(*scores)


def main() -> None:
    """Print a row for every run."""
    roots = given_runs(__doc__)
    print_header("run", "members, others", "centroids, of one image", "AUC", "found at 1 %")
    for root in roots:
        print_row(*row(root))


if __name__ == "__main__":
    main()
