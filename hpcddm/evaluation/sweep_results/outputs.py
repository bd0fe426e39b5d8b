"""Output files of a sweep: `table.csv`, `table.png` and, over several seeds, `seeds.csv`."""

from collections.abc import Mapping

from hpcddm.evaluation.sweep_results.seed_statistics import SEEDS_CSV, statistics_over_seeds, write_seeds
from hpcddm.evaluation.sweep_results.setting_results import (
    CSV,
    PLOT,
    Blocker,
    SettingResult,
    setting_results,
    write_csv,
)
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.sweep_index import SweepIndex


def publish(home: RunDir, index: SweepIndex, blockers: Mapping[str, Blocker]) -> list[SettingResult]:
    """Write the output files and return the table's rows."""
    # matplotlib takes half a second, and most calls of the command draw nothing.
    from hpcddm.evaluation.sweep_results.plot import write_plot

    rows = setting_results(index, home, blockers)
    write_csv(rows, home.root / CSV)
    write_plot(rows, home.root / PLOT, index.name)
    if spreads := statistics_over_seeds(rows):
        write_seeds(spreads, home.root / SEEDS_CSV)
    return rows
