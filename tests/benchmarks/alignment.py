"""Tell if alignment names the strategy that wins: python -m tests.benchmarks.alignment RUN ...

Of every strategy of a run: distance of the estimated x0 to the clusters of the experts that are asked, over that to
all clusters, both means over the steps (arXiv 2602.02685), beside FD and KID of its samples by the run's extractor.
Spearman's rho is 1 where distance ranks the strategies as FD or KID does; the runs need complete reports.
"""

import numpy as np
from scipy import stats

from hpcddm.files import checked_reads
from hpcddm.runs.files import ALIGNMENT_FILE, METRICS
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CONCEPT_ALIGNMENT, REPORT
from tests.benchmarks.tables import given_runs, print_header, print_row

QUALITIES = {"fd": "FD", "kid": "KID"}


def ratios(distances: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """Divide the distance to the clusters that are asked by that to all, by strategy."""
    return {arm: float(np.mean(own["asked"]) / np.mean(own["every"])) for arm, own in distances.items()}


def main() -> None:
    """Print a row of every run and strategy, and the rank correlations of each run."""
    roots, said = given_runs(__doc__), []
    print_header("run", "strategy", "distance", "FD", "KID")
    for root in roots:
        run = RunDir(root)
        measured = (checked_reads.read_json(run.unit(REPORT) / METRICS) or {})["arms"]
        distances = (checked_reads.read_json(run.unit(CONCEPT_ALIGNMENT) / ALIGNMENT_FILE) or {}).get("distances")
        if distances is None:
            said.append(f"{root.name}: its alignment was not measured, or has no distances")
            continue
        near = ratios(distances)
        for arm, ratio in near.items():
            print_row(root.name, arm, f"{ratio:.3f}", *(f"{measured[arm][key]:.2f}" for key in QUALITIES))
        rho = {
            title: stats.spearmanr([*near.values()], [measured[arm][key] for arm in near]).statistic
            for key, title in QUALITIES.items()
        }
        named = ", ".join(f"{title} {value:+.2f}" for title, value in rho.items())
        said.append(f"{root.name}: Spearman's rho of distance and {named}, over {len(near)} strategies")
    print("\n".join(["", *said]))


if __name__ == "__main__":
    main()
