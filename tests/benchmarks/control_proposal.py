"""Write the control of a run's proposal: python -m tests.benchmarks.control_proposal RUN FILE

As many samples move from each cluster to each other one as in RUN/concept_analysis/proposal.csv, but random ones, so
that sizes and FLOPs are the same. A run that is trained on each of them, and scored with other seeds, tells what the
advice is worth, beside what moving samples is worth. FILE is what `cluster.clustering={name: file, table: {file:
FILE}}` reads.
"""

import csv
from pathlib import Path

import numpy as np
from jaxtyping import Int64

import hpcddm
from hpcddm.data.run_samples import CLUSTER
from hpcddm.runs.files import PROPOSAL_FILE
from hpcddm.runs.ranges import SPLITS
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CONCEPT_ANALYSIS
from tests.benchmarks.tables import parser_of

AS_WRITTEN = {"newline": "", "encoding": "utf-8", "errors": "surrogateescape"}
"""How the proposal is written: keys need not be UTF-8."""


def control(
    clusters: Int64[np.ndarray, " n"], proposed: Int64[np.ndarray, " n"], generator: np.random.Generator
) -> Int64[np.ndarray, " n"]:
    """Move as many random samples from each cluster to each other one."""
    moved = clusters.copy()
    for start in np.unique(clusters):
        leaving = proposed[(clusters == start) & (proposed != start)]
        # Random samples of the cluster, in random order, take the places of those that leave it.
        moved[generator.permutation(np.flatnonzero(clusters == start))[: len(leaving)]] = leaving
    return moved


def main() -> None:
    """Read both partitions and write the control."""
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    run, generator = hpcddm.open(options.run), np.random.default_rng(options.seed)
    with open(RunDir(options.run).unit(CONCEPT_ANALYSIS) / PROPOSAL_FILE, **AS_WRITTEN) as file:
        proposal = {row["key"]: int(row["cluster"]) for row in csv.DictReader(file)}
    with open(options.file, "x", **AS_WRITTEN) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["key", "cluster"])
        for split in SPLITS:
            reader = run.data(split)
            keys, stored = (reader.column(name, range(len(reader))) for name in ("key", CLUSTER))
            clusters, proposed = np.asarray(stored).astype(np.int64), np.array([proposal[key] for key in keys])
            moved = control(clusters, proposed, generator)
            writer.writerows(zip(keys, moved.tolist(), strict=True))
            print(f"{split}: {(moved != clusters).sum()} of {len(moved)} moved")


if __name__ == "__main__":
    main()
