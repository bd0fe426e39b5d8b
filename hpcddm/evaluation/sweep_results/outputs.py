"""Output files of a sweep: `table.csv`, `table.png` and, over several seeds, `seeds.csv`."""

from collections.abc import Mapping

from hpcddm.evaluation.sweep_results.spread import SEEDS_CSV, over_seeds, write_seeds
from hpcddm.evaluation.sweep_results.table import CSV, PLOT, SettingResult, setting_results, write_csv
from hpcddm.runs.layout import RunDir
from hpcddm.runs.sweep_index import Index


def publish(home: RunDir, index: Index, states: Mapping[str, str]) -> list[SettingResult]:
    """Write the output files and return the table's rows."""
    # matplotlib takes half a second, and most calls of the command draw nothing.
    from hpcddm.evaluation.sweep_results.plot import write_plot

    rows = setting_results(index, home, states)
    write_csv(rows, home.root / CSV)
    write_plot(rows, home.root / PLOT, index.name)
    if spreads := over_seeds(rows):
        write_seeds(spreads, home.root / SEEDS_CSV)
    return rows
