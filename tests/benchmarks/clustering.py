"""K-means against faiss and scikit-learn from the same start; its starts; fit and assignment of 10 million samples.

    python -m tests.benchmarks.clustering fit [THREADS ...]
    python -m tests.benchmarks.clustering starts
    python -m tests.benchmarks.clustering stream FOLDER [SAMPLES]

The first takes turns on 200,000 x 256 features and 256 clusters, with equal numbers of threads; scikit-learn is left
out where it is not installed. The second writes a column of float16 features and runs in processes of their own, whose
anonymous memory (RssAnon, without what a Python with torch takes before) is looked at every 20 ms. `starts` compares
starts of both stages of `kmeans` by random points, as hpcddm has them, with those of k-means++ (Arthur and
Vassilvitskii, 2007) and with its greedy form, which keeps the best of 2 + log k candidates: on the quickstart's images,
the 320 emoji of the tests, and the features of `fit`.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import faiss
import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from hpcddm.clustering.base import Workspace
from hpcddm.clustering.centroids import Centroids
from hpcddm.clustering.hierarchical import Hierarchical
from hpcddm.clustering.hierarchical import HierarchicalSettings as HierarchicalSettings
from hpcddm.clustering.kmeans import KMeans, KMeansSettings
from hpcddm.clustering.lloyd import iterate, tally
from hpcddm.clustering.nearest_centroid import normalise_features
from hpcddm.clustering.partition import read_arrays, write_arrays
from hpcddm.clustering.samples import Samples
from hpcddm.data import randomness
from hpcddm.data.catalog import Catalog, SplitEntry, split_into_blocks
from hpcddm.data.column_files import RowBlocks, write_columns
from hpcddm.data.columns import Column
from hpcddm.launch.load_experiment import load_experiment
from hpcddm.stages.data.cluster_job import fitted_numbers
from tests.benchmarks.balance import encoded
from tests.benchmarks.scale import MEGABYTE, in_a_process
from tests.pictures import EMOJI, SIDE

Start = Callable[[np.ndarray, int, int, int], np.ndarray]
"""Start of k-means from points, number of centroids, seed and number of the run."""

POINTS, DIMENSIONS, CLUSTERS, ITERATIONS = 200_000, 256, 256, 10
PLACES, SPREAD = 512, 1.5
"""Places around which the features are drawn, and the deviation from them, as large as that of the places is 1."""
ROUNDS = 4
DRAWN = 16
"""Points for every centroid that k-means++ looks at."""
NREDO = (1, 3, 4)
REDOS, COARSE_ITERATIONS = 3, 30
"""Runs and iterations of the coarse stage, as in the quickstart."""
SAMPLES, FINE, FIT_ITERATIONS, EXPERTS = 10_000_000, 1024, 5, 8


@dataclass
class Times:
    """Seconds of every round, by the clock and of all processors, and the centroids of the last."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    centroids: np.ndarray | None = None


def features(count: int, seed: int) -> np.ndarray:
    """Features around some places, centred and of length one."""
    rng = np.random.default_rng(seed)
    places = np.random.default_rng(0).standard_normal((PLACES, DIMENSIONS)).astype(np.float32)
    drawn = places[rng.integers(0, PLACES, count)]
    drawn += np.float32(SPREAD) * rng.standard_normal((count, DIMENSIONS), dtype=np.float32)
    drawn -= drawn.mean(0)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def by_faiss(points: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Centroids of faiss' own k-means, on all points."""
    options = {"max_points_per_centroid": len(points), "min_points_per_centroid": 1}
    kmeans = faiss.Kmeans(points.shape[1], len(start), niter=ITERATIONS, **options)
    kmeans.train(points, init_centroids=start)
    return kmeans.centroids


def by_scikit_learn(points: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Centroids of scikit-learn's Lloyd."""
    from sklearn.cluster import KMeans as Theirs

    return Theirs(len(start), init=start, n_init=1, max_iter=ITERATIONS, tol=0).fit(points).cluster_centers_


def sides() -> dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """What is compared."""
    every = {"hpcddm": lambda points, start: iterate(points, start, ITERATIONS)[1], "faiss": by_faiss}
    try:
        import sklearn  # noqa: F401
    except ImportError:
        print("scikit-learn is not installed and left out")
        return every
    return every | {"scikit-learn": by_scikit_learn}


def set_threads(count: int) -> None:
    """Let all sides use so many threads."""
    torch.set_num_threads(count)
    faiss.omp_set_num_threads(count)


def inertia(points: np.ndarray, centroids: np.ndarray) -> float:
    """Sum of the squared distances of all points from their nearest centroids."""
    found = tally(points, Centroids(centroids), len(centroids))
    return float(np.square(points - centroids[found.clusters], dtype=np.float64).sum())


def product_seconds(points: np.ndarray, centroids: np.ndarray) -> float:
    """Processor seconds of the floor: nothing but the products of one iteration, 2 N k d FLOPs."""
    columns, given = torch.from_numpy(np.ascontiguousarray(centroids.T)), torch.from_numpy(points)
    out = torch.empty(len(points), len(centroids))
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        torch.mm(given, columns, out=out)
        times.append(time.process_time() - started)
    return min(times)


def fit(threads: list[int]) -> None:
    """Compare all sides with each number of threads, in turns."""
    points = features(POINTS, 1)
    start = points[:CLUSTERS].copy()
    table = Table("threads", "side", "s (least)", "/ faiss", "CPU s (least)", "/ faiss", "inertia", "/ hpcddm's")
    centroids = []
    for count in threads:
        set_threads(count)
        times = {name: Times() for name in sides()}
        for _ in range(ROUNDS):
            for name, run in sides().items():
                clock, processor = time.perf_counter(), time.process_time()
                times[name].centroids = np.asarray(run(points, start), dtype=np.float32)
                times[name].clock.append(time.perf_counter() - clock)
                times[name].processor.append(time.process_time() - processor)
        floor = product_seconds(points, start) * ITERATIONS
        own, theirs = times["hpcddm"], times["faiss"]
        centroids.append(own.centroids)
        least = inertia(points, own.centroids)
        for name, side in times.items():
            seconds, processor = min(side.clock), min(side.processor)
            objective = inertia(points, side.centroids)
            ratios = seconds / min(theirs.clock), processor / min(theirs.processor), objective / least
            row = f"{seconds:.2f}", f"{ratios[0]:.2f}", f"{processor:.2f}", f"{ratios[1]:.2f}"
            table.add_row(str(count), name, *row, f"{objective:.2f}", f"{ratios[2]:.6f}")
        flops = 2 * POINTS * CLUSTERS * DIMENSIONS * ITERATIONS
        share = floor / min(own.processor)
        row = "", "", f"{floor:.2f}", "", f"{flops / floor / 1e9:.0f} GFLOP/s", f"{share:.0%} of hpcddm's CPU s"
        table.add_row(str(count), "floor: the products alone", *row, end_section=True)
    Console(width=140).print(table)
    same = all(np.array_equal(first, centroids[0]) for first in centroids)
    print(f"the same centroids, bit for bit, for {threads} threads: {same}")


def random_points(points: np.ndarray, k: int, seed: int, redo: int) -> np.ndarray:
    """The start of hpcddm's k-means."""
    return points[randomness.random_subset(seed, f"cluster/starts/{redo}", len(points), k)]


def plus_plus(points: np.ndarray, k: int, seed: int, redo: int, candidates: int = 1) -> np.ndarray:
    """Points drawn one after the other in proportion to the squared distance from those before.

    Of `candidates` the one that leaves the least inertia is kept. `ROUTER_SAMPLES_INFO` points for every centroid are
    looked at.
    """
    rng = np.random.default_rng([seed, redo])
    points = points[randomness.random_subset(seed, f"cluster/candidates/{redo}", len(points), DRAWN * k)]
    squares, chosen = np.square(points).sum(1), [int(rng.integers(len(points)))]
    left = np.square(points - points[chosen[0]]).sum(1)
    while len(chosen) < k:
        mass = left.cumsum(dtype=np.float64)
        drawn = np.searchsorted(mass, rng.random(candidates) * mass[-1], side="right").clip(max=len(points) - 1)
        distances = np.maximum(squares[:, None] + squares[drawn] - 2 * points @ points[drawn].T, 0)
        after = np.minimum(left[:, None], distances)
        least = int(after.sum(0, dtype=np.float64).argmin())
        left = np.ascontiguousarray(after[:, least])
        chosen.append(int(drawn[least]))
    return points[chosen]


def greedy(points: np.ndarray, k: int, seed: int, redo: int) -> np.ndarray:
    """The start of scikit-learn's k-means, on fewer points."""
    return plus_plus(points, k, seed, redo, 2 + int(np.log(k)))


def runs_from(
    start: Start, restarts: int, points: np.ndarray, k: int, iterations: int, seed: int
) -> list[tuple[float, np.ndarray]]:
    """Inertia and centroids of so many runs."""
    return [iterate(points, start(points, k, seed, redo), iterations) for redo in range(restarts)]


def best(runs: list[tuple[float, np.ndarray]]) -> np.ndarray:
    """The centroids of the run of least inertia."""
    return min(runs, key=lambda run: run[0])[1]


def within(points: np.ndarray, clusters: np.ndarray, count: int) -> float:
    """Mean squared distance of points from the mean of their cluster."""
    means = np.stack([points[clusters == one].mean(0, dtype=np.float64) for one in range(count)])
    return float(np.square(points - means[clusters]).sum() / len(points))


def emoji() -> np.ndarray:
    """Means over 3 x 3 pixels of the 320 pictures in the sheet of the tests: (320, 192)."""
    sheet = np.asarray(Image.open(EMOJI / "sheet.png").convert("RGB"), np.float32)
    rows, columns, side = sheet.shape[0] // SIDE, sheet.shape[1] // SIDE, SIDE // 3
    means = sheet.reshape(rows, side, 3, columns, side, 3, 3).mean((2, 5))
    return means.transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)


def starts() -> None:
    """Fit all sets from all starts, with several seeds each."""
    set_threads(1)
    quickstart = load_experiment("quickstart", ())
    sets: dict[str, tuple[np.ndarray, int, int, int, int]] = {
        "quickstart, 14,000 x 49": (encoded(quickstart)[0], 256, 30, quickstart.cluster.experts, 16),
        "emoji, 320 x 192": (emoji(), 64, 30, 8, 16),
        "places, 200,000 x 256": (features(POINTS, 1), CLUSTERS, ITERATIONS, EXPERTS, 3),
    }
    table = Table(
        "set", "start", "restarts", "CPU s", "fine_clusters: mean, worst", "kmeans: mean, worst", "ward: mean, worst"
    )
    for name, (given, fine, iterations, experts, seeds) in sets.items():
        points = normalise_features(given.astype(np.float32), given.mean(0, dtype=np.float64), "cosine")
        rows = {}
        for start in (random_points, plus_plus, greedy):
            began = time.process_time()
            runs = [runs_from(start, max(NREDO), points, fine, iterations, seed) for seed in range(seeds)]
            seconds = (time.process_time() - began) / (seeds * max(NREDO))
            for restarts in NREDO:
                fits = [best(one[:restarts]) for one in runs]
                found = [inertias(points, made, start, experts, seed) for seed, made in enumerate(fits)]
                rows[start.__name__, restarts] = restarts * seconds, np.array(found)
        least = np.min([found.min(0) for _, found in rows.values()], axis=0)
        for (start_name, restarts), (seconds, found) in rows.items():
            above = 100 * (found / least - 1)
            cells = [f"{mean:.2f}, {worst:.2f} %" for mean, worst in zip(above.mean(0), above.max(0), strict=True)]
            table.add_row(name, start_name, str(restarts), f"{seconds:.2f}", *cells)
        print(name, "least:", *(f"{value:.5f}" for value in least), flush=True)
    Console(width=140).print(table)


def inertias(points: np.ndarray, fine: np.ndarray, start: Start, experts: int, seed: int) -> tuple[float, float, float]:
    """Mean squared distances: of the fine clusters, of their coarse clusters by k-means, and by Ward's linkage."""
    found = tally(points, Centroids(fine), len(fine))
    coarse = Centroids(best(runs_from(start, REDOS, fine, experts, COARSE_ITERATIONS, seed))).nearest(fine)
    ward = Hierarchical(HierarchicalSettings(name="hierarchical")).merge_fine(fine, found.sizes, experts, seed)[1]
    by_kmeans, by_ward = (within(points, clusters[found.clusters], experts) for clusters in (coarse, ward))
    return inertia(points, fine) / len(points), by_kmeans, by_ward


def written(folder: Path, count: int) -> Column:
    """Write a column of so many features as float16, where it is not there yet."""
    path = folder / f"features-{count}.h5"
    if not path.exists():

        def drawn() -> Iterator[np.ndarray]:
            for block in split_into_blocks(range(count)):
                yield features(len(block), 1 + block.start).astype(np.float16)

        write_columns(path, {"features": RowBlocks((count, DIMENSIONS), np.dtype("<f2"), drawn())})
    return Column("features", {path: count})


def stream(folder: Path, count: int) -> None:
    """Fit and assign so many samples, each in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    column = written(folder, count)
    own = {"fine_clusters": FINE, "iterations": FIT_ITERATIONS, "restarts": 1}
    clusterings = {
        "kmeans, max_share 1.5 / K": KMeans(KMeansSettings(name="kmeans", **own, max_share=1.5 / EXPERTS)),
        "kmeans, nearest_coarse, max_share 1.5 / K": KMeans(
            KMeansSettings(name="kmeans", **own, max_share=1.5 / EXPERTS, assignment="nearest_coarse")
        ),
        "hierarchical, ward": Hierarchical(HierarchicalSettings(name="hierarchical", **own)),
    }
    numbers = fitted_numbers(count, 0)
    table = Table("", "samples", "s", "CPU s", "anonymous MB", "figures")

    def row(what: str, samples: int, call: Callable[[], object], figures: str = "") -> None:
        started = time.perf_counter()
        processor, grown = in_a_process(call)
        seconds = f"{time.perf_counter() - started:.0f}", f"{processor:.0f}", f"{grown / MEGABYTE:.0f}"
        said = Path(figures).read_text() if figures else ""
        table.add_row(what, f"{samples:,}", *seconds, said)
        print(what, *seconds, said, flush=True)

    samples = Samples(Catalog(folder, SplitEntry([], [], [])), column)
    for name, clustering in clusterings.items():

        def fitted(clustering: KMeans | Hierarchical = clustering) -> None:
            partition = clustering.fit(samples, numbers, EXPERTS, 0, Workspace(folder))
            write_arrays(folder / "partition.h5", partition)
            figures = ", ".join(f"{name} {value:.4f}" for name, value in partition.figures.items())
            (folder / "figures.txt").write_text(figures)

        row(f"fit: {name}", len(numbers), fitted, str(folder / "figures.txt"))

    def assigned() -> None:
        partition = clusterings["hierarchical, ward"].load(read_arrays(folder / "partition.h5"))
        for block in split_into_blocks(range(count)):
            partition.assign(samples, block)

    row("assign, to 1,024 fine clusters", count, assigned)
    Console(width=140).print(table)


def main(arguments: list[str]) -> None:
    """Measure one of the three."""
    what, *others = arguments or ["fit"]
    if what == "fit":
        fit(list(map(int, others)) or [1, min(2, os.cpu_count() or 1)])
    elif what == "starts":
        starts()
    else:
        stream(Path(others[0]), int(others[1]) if len(others) > 1 else SAMPLES)


if __name__ == "__main__":
    main(sys.argv[1:])
