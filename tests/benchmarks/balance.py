"""Sizes of clusters with and without max_share, and what it costs: python -m tests.benchmarks.balance IDX [RUN ...]

IDX holds the four files of Fashion-MNIST, as Debian's package dataset-fashion-mnist has them. Every RUN is the folder
of a run up to its features at least (`hpcddm submit EXPERIMENT --until encode`), clustered as its experiment says. The
features are those by which experiments/fashion_mnist.yaml clusters; the skewed set has 1 / r^2 of the images of the
r-th class.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpcddm.clustering.base import FeatureClustering
from hpcddm.clustering.measures import effective_number
from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.reader import ArrayReader
from hpcddm.data.run_samples import open_catalog
from hpcddm.encoders.image.base import SampleEncoder
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.sources.base import Source
from hpcddm.stages.data.cluster_job import fitted_numbers
from tests.benchmarks.tables import parser_of, print_header, print_row

BOUNDS = (None, 1.5, 1.2, 1.05)
"""Largest share that is allowed, as a multiple of 1 / K; None for no bound."""
ASSIGNMENTS = ("fine_lookup", "nearest_coarse")


def fashion_mnist(folder: Path) -> tuple[Experiment, np.ndarray, np.ndarray]:
    """The experiment, and features and classes of its training images, which its source has as grey arrays."""
    experiment = load_experiment("fashion_mnist", (f"data.source.folder={folder}",))
    split = variants.create(Source, experiment.data.source).open_split("train")
    images = np.stack([np.asarray(split[number].image) for number in range(len(split))])[..., None]
    encoder = variants.create(SampleEncoder, experiment.encode.encoder)
    nothing = np.zeros(len(images), np.int64)
    return experiment, encoder.features(ArrayReader(images, nothing, nothing), range(len(images))), split.labels


def skewed(labels: np.ndarray) -> np.ndarray:
    """The images of a long tail: of the r-th class the first 1 / r^2."""
    rows = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.concatenate([own[: round(len(own) / (rank + 1) ** 2)] for rank, own in enumerate(rows)])


def of_run(folder: Path) -> tuple[Experiment, np.ndarray]:
    """The experiment of a run, and the features to which its clusters are fitted."""
    run = RunDir(folder)
    features, experiment = run_samples.features(open_catalog(run, "train")), stored_experiment(run)
    return experiment, features.gather(fitted_numbers(len(features), experiment.seed))


def rows_of(name: str, experiment: Experiment, features: np.ndarray) -> Iterator[list[str]]:
    """One line for each assignment and bound."""
    experts, clustering = experiment.cluster.experts, experiment.cluster.clustering
    for assignment in ASSIGNMENTS:
        for bound in BOUNDS:
            changes = {"assignment": assignment, "max_share": bound / experts if bound else None}
            began = time.perf_counter()
            made = variants.create(FeatureClustering, clustering.model_copy(update=changes))
            partition = made.fit_features(features, experts, experiment.seed)
            seconds = time.perf_counter() - began
            sizes = np.bincount(partition.assign_features(features), minlength=experts)
            inertia = partition.figures["inertia"]
            cost = inertia / partition.figures.get("inertia_without_max_share", inertia) - 1
            ends = (f"{end / sizes.mean():.2f}" for end in (sizes.max(), sizes.min()))
            even, cost_time = f"{effective_number(sizes):.2f} of {experts}", f"{100 * cost:+.2f} %, {seconds:.0f} s"
            yield [name, assignment, f"{bound} / K" if bound else "none", *ends, even, f"{inertia:.4f}", cost_time]


def main() -> None:
    """Fit and print one table."""
    parser = parser_of(__doc__)
    parser.add_argument("images", type=Path, help="IDX")
    parser.add_argument("runs", type=Path, nargs="*")
    given = parser.parse_args()
    experiment, features, labels = fashion_mnist(given.images)
    sets = {"Fashion-MNIST": (experiment, features), "the same, skewed": (experiment, features[skewed(labels)])}
    sets |= {run.name: of_run(run) for run in given.runs}
    sizes = "largest / mean", "smallest / mean", "even as"
    print_header("set", "assignment", "max_share", *sizes, "inertia", "cost, time")
    for name, (own, rows) in sets.items():
        for cells in rows_of(f"{name}, {len(rows):,}", own, rows):
            print_row(*cells)


if __name__ == "__main__":
    main()
