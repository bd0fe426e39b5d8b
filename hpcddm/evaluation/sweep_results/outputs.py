"""Output files of a sweep: `table.csv`, `table.png`, `tradeoffs.png` and, over several seeds, `seeds.csv`."""

from collections.abc import Mapping

from hpcddm.config.sweep import REPORTED
from hpcddm.evaluation.sweep_results.seed_statistics import SEEDS_CSV, statistics_over_seeds, write_seeds
from hpcddm.evaluation.sweep_results.setting_results import (
    CSV,
    PLOT,
    TRADEOFFS,
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
    from hpcddm.evaluation.sweep_results.tradeoffs import write_tradeoffs

    rows = setting_results(index, home, blockers)
    write_csv(rows, home.root / CSV)
    write_plot([row for row in rows if REPORTED not in row.setting], home.root / PLOT, index.name)
    write_tradeoffs(rows, home.root / TRADEOFFS)
    if spreads := statistics_over_seeds(rows):
        write_seeds(spreads, home.root / SEEDS_CSV)
    return rows
