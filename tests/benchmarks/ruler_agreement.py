"""Do extractors and metrics rank arms alike? python -m tests.benchmarks.ruler_agreement RUN ...

For every two of FD, KID and MIND in the features of all extractors that the runs have in common: Spearman's rank
correlation over the arms of a run, averaged over the runs, with the 95 % interval of the delete-a-tenth jackknife.
"""

from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from hpcddm.evaluation.comparisons import ArmComparison
from hpcddm.evaluation.metrics import short_key
from hpcddm.evaluation.statistics.tenths import interval
from hpcddm.runs import manifest
from hpcddm.runs.files import COMPARISON
from hpcddm.runs.run_dir import RunDir
from tests.benchmarks.tables import given_runs, print_header, print_row

COMPARED = ("fd", "kid", "mind")


def values_by_figure(root: Path) -> dict[str, np.ndarray]:
    """Read the figures of a run by metric and extractor: (11, arms), of all images, then without each tenth."""
    values = {}
    for folder in sorted((root / "compare").iterdir()):
        key = f"compare/{folder.name}"
        read: ArmComparison = manifest.read_verified_json(RunDir(root).unit(key), COMPARISON, ArmComparison)
        for figure in next(iter(read.arms.values())):
            if short_key(figure) in COMPARED:
                columns = [[arm[figure]["value"], *arm[figure]["left_out"]] for arm in read.arms.values()]
                values[f"{short_key(figure)}@{folder.name}"] = np.array(columns).T
    return values


def agreement(first: list[np.ndarray], second: list[np.ndarray]) -> np.ndarray:
    """Average the rank correlations of two figures over runs, (11,)."""
    runs = zip(first, second, strict=True)
    by_run = [[spearmanr(*pair).statistic for pair in zip(a, b, strict=True)] for a, b in runs]
    return np.mean(by_run, axis=0)


def main() -> None:
    """Print a row for every two figures."""
    runs = [values_by_figure(root) for root in given_runs(__doc__)]
    shared = [figure for figure in runs[0] if all(figure in run for run in runs)]
    arms = {run[shared[0]].shape[1] for run in runs}
    print(f"{len(runs)} runs, {min(arms)} to {max(arms)} arms\n")
    print_header("figures", "Spearman", "95 % interval")
    for first, second in combinations(shared, 2):
        cases = agreement([run[first] for run in runs], [run[second] for run in runs])
        estimate = interval(cases[0], cases[1:])
        ends = f"{max(estimate.low, -1.0):.2f} to {min(estimate.high, 1.0):.2f}"
        print_row(f"{first}, {second}", f"{cases[0]:.2f}", ends)


if __name__ == "__main__":
    main()
