"""The tables of docs/results/ from a sweep's folder, in Markdown: python -m tests.benchmarks.tables sweeps/method

One line for each setting and arm, mean and standard deviation over the seeds; then the routers by noise level.
"""

import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

from hpcddm.config.sweep import label_of, short_names
from hpcddm.evaluation.metrics import all_metrics
from hpcddm.evaluation.sweep_results.seed_statistics import SEED, statistics_over_seeds
from hpcddm.evaluation.sweep_results.setting_results import FLOOR, blockers_by_files, setting_results
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.sweep_index import SweepIndex, read_index
from hpcddm.runs.unit_keys import ROUTER

LEVELS = (0.05, 0.25, 0.45, 0.65, 0.85)
BEFORE_ROUTERS = ("encode", "cluster", "router")
"""Sections of the settings by which routers differ."""


def formatted(values: Iterable[float], digits: int, scale: float = 1.0) -> str:
    """Return 'mean +- standard deviation', or the only value."""
    values = [scale * value for value in values]
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} +- {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def arms(index: SweepIndex, home: RunDir) -> None:
    """Every measure of every setting and arm."""
    print(f"| setting | arm | {' | '.join(metric.title for metric in all_metrics())} |")
    print("| --- " * (2 + len(all_metrics())) + "|")
    spreads = statistics_over_seeds(setting_results(index, home, blockers_by_files(index, home)), fewest=1)
    floors = [spread for spread in spreads if spread.arm == FLOOR]
    for spread in [spread for spread in spreads if spread.arm != FLOOR] + floors[:1]:
        label = label_of(spread.setting, short_names(spread.setting)) if spread.arm != FLOOR else ""
        cells = [spread.formatted(metric) for metric in all_metrics()]
        print(f"| {label} | {spread.arm} | {' | '.join(cells)} |")


def routers(index: SweepIndex, home: RunDir) -> None:
    """Accuracy and calibration of every router by noise level."""
    by_name: dict[str, list[dict]] = {}
    for label in index.current:
        made = manifest.read(RunDir(home.root / label).unit(ROUTER))
        if made is not None:
            own = {key: value for key, value in index.settings[label].items() if key.startswith(BEFORE_ROUTERS)}
            name = label_of(own, short_names(own)) if own else "trained"
            by_name.setdefault(name, []).append({SEED: index.settings[label].get(SEED), **made.results})
    print(f"\n| router | what | {' | '.join(f't = {level:g}' for level in LEVELS)} |")
    print("| --- " * (2 + len(LEVELS)) + "|")
    for name, seeded in by_name.items():
        seeds = list({results[SEED]: results for results in seeded}.values())
        places = [seeds[0]["noise_levels"].index(level) for level in LEVELS]
        for what in ("accuracy", "nll", "calibration_error", "scaled_nll", "scaled_calibration_error"):
            if what in seeds[0]:
                scale, digits = (1, 3) if "nll" in what else (100, 1)
                cells = [formatted([results[what][place] for results in seeds], digits, scale) for place in places]
                print(f"| {name} | {what} | {' | '.join(cells)} |")


def main() -> None:
    home = RunDir(Path(sys.argv[1]))
    index = read_index(home)
    arms(index, home)
    routers(index, home)


if __name__ == "__main__":
    main()
