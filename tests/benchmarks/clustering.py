"""Fit and assignment of ten million samples: python -m tests.benchmarks.clustering FOLDER [--samples 10000000]

A column of float16 features is written into FOLDER where it is not there yet. Everything runs in processes of their
own, whose anonymous memory (RssAnon, without what a Python with torch takes before) is looked at every 20 ms.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from hpcddm.clustering.base import Workspace
from hpcddm.clustering.kmeans import KMeans, KMeansSettings
from hpcddm.clustering.partition import read_arrays, write_arrays
from hpcddm.clustering.samples import Samples
from hpcddm.data.catalog import Catalog, SplitEntry, split_into_blocks
from hpcddm.data.column_files import RowBlocks, write_columns
from hpcddm.data.columns import Column
from hpcddm.stages.data.cluster_job import fitted_numbers
from tests.benchmarks.scale import MEGABYTE, in_a_process
from tests.benchmarks.tables import parser_of, print_header, print_row

DIMENSIONS, PLACES, SPREAD = 256, 512, 1.5
"""Features, places around which they are drawn, and the deviation from them, as large as that of the places is 1."""
EXPERTS = 8
OWN = {"fine_clusters": 1024, "iterations": 5, "restarts": 1}
BOUNDED = OWN | {"name": "kmeans", "max_share": 1.5 / EXPERTS}
CLUSTERINGS = {
    "kmeans, max_share 1.5 / K": KMeans(KMeansSettings(**BOUNDED)),
    "kmeans, nearest_coarse, max_share 1.5 / K": KMeans(KMeansSettings(**BOUNDED, assignment="nearest_coarse")),
}


def features(count: int, seed: int) -> np.ndarray:
    """Features around some places, centred and of length one."""
    rng = np.random.default_rng(seed)
    places = np.random.default_rng(0).standard_normal((PLACES, DIMENSIONS)).astype(np.float32)
    drawn = places[rng.integers(0, PLACES, count)]
    drawn += np.float32(SPREAD) * rng.standard_normal((count, DIMENSIONS), dtype=np.float32)
    drawn -= drawn.mean(0)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def written(folder: Path, count: int) -> Column:
    """Write a column of so many features as float16, where it is not there yet."""
    path = folder / f"features-{count}.h5"
    if not path.exists():

        def drawn() -> Iterator[np.ndarray]:
            for block in split_into_blocks(range(count)):
                yield features(len(block), 1 + block.start).astype(np.float16)

        write_columns(path, {"features": RowBlocks((count, DIMENSIONS), np.dtype("<f2"), drawn())})
    return Column("features", {path: count})


def fit(name: str, samples: Samples, numbers: np.ndarray, folder: Path) -> None:
    """Fit, and leave the partition and its figures in the folder."""
    partition = CLUSTERINGS[name].fit(samples, numbers, EXPERTS, 0, Workspace(folder))
    write_arrays(folder / "partition.h5", partition)
    (folder / "figures.txt").write_text(", ".join(f"{key} {value:.4f}" for key, value in partition.figures.items()))


def assign(samples: Samples, count: int, folder: Path) -> None:
    """Assign all samples to the fine clusters of the last fit."""
    partition = CLUSTERINGS["kmeans, max_share 1.5 / K"].load(read_arrays(folder / "partition.h5"))
    for block in split_into_blocks(range(count)):
        partition.assign(samples, block)


def main() -> None:
    """Print a row for every fit, and one for the assignment."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=10_000_000)
    given = parser.parse_args()
    folder, count = given.folder, given.samples
    folder.mkdir(parents=True, exist_ok=True)
    samples = Samples(Catalog(folder, SplitEntry([], [], [])), written(folder, count))
    numbers = fitted_numbers(count, 0)
    print_header("", "samples", "CPU s", "anonymous MB", "figures")
    for name in CLUSTERINGS:
        seconds, grown = in_a_process(partial(fit, name, samples, numbers, folder))
        figures = (folder / "figures.txt").read_text()
        print_row(f"fit: {name}", f"{len(numbers):,}", f"{seconds:.0f}", f"{grown / MEGABYTE:.0f}", figures)
    seconds, grown = in_a_process(partial(assign, samples, count, folder))
    print_row("assign, to 1,024 fine clusters", f"{count:,}", f"{seconds:.0f}", f"{grown / MEGABYTE:.0f}", "")


if __name__ == "__main__":
    main()
