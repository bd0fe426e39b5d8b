"""Tell training images from held-out ones by the partition alone: python -m tests.benchmarks.centroids RUN ...

An attacker has the centroids, as a contract carries them, and the features of images. A centroid is the mean of the
training images nearest to it, so these are nearer to it than others are: the score of an image is minus its squared
distance from the nearest centroid. Runs have a partition by centroids, such as `kmeans`.
"""

import argparse
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


def row(root: Path) -> str:
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
    area, found = roc.area(*scores), roc.found(*scores)
    counts = f"{len(scores[0]):,}, {len(scores[1]):,} | {len(centroids)}, {int((sizes == 1).sum())}"
    return f"| {root.name} | {counts} | {area} | {found} |"


def main() -> None:
    """Print a row for every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    print("| run | members, others | centroids, of one image | AUC | found at 1 % |")
    print("| --- | --- | --- | --- | --- |")
    for root in parser.parse_args().runs:
        print(row(root))


if __name__ == "__main__":
    main()
