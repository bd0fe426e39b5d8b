"""The table of a sweep on the terminal."""

from hpcddm.commands.terminal import make_table, print_table
from hpcddm.config.sweep import label_of, short_names
from hpcddm.errors.printing import echo
from hpcddm.evaluation.metrics import all_metrics, columns, headlines, led_by
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.sweep_results.seed_statistics import SEEDS_CSV, SeedStatistics, statistics_over_seeds
from hpcddm.evaluation.sweep_results.setting_results import CSV, FLOOR, SettingResult, leading_metric, varied_keys

MAX_METRICS = 3
"""Number of metrics in the cell of an arm; more would make lines too long to read."""


def print_sweep_table(rows: list[SettingResult]) -> None:
    """Print one line for each setting: the first metrics of every arm, or what keeps it from being complete.

    The other metrics are in the CSV. Over several seeds, one line for each setting and arm.
    """
    spreads = statistics_over_seeds(rows)
    if any(spread.seeds > 1 for spread in spreads):
        _print_spreads(spreads, led_by(leading_metric(rows).key, columns()))
    else:
        _print_settings(rows)
    for row in rows:
        if not row.arms:
            echo(f"{row.label}: {row.state}")
    for remark in dict.fromkeys(row.remark for row in rows if row.remark):
        echo(f"{', '.join(row.label for row in rows if row.remark == remark)}: made with {remark}")
    if warned := [row.label for row in rows if row.warnings]:
        echo(f"warning: the reports of {', '.join(warned)} give reasons to doubt their figures")


def _print_settings(rows: list[SettingResult]) -> None:
    """Print one line for each setting, an arm in each column."""
    keys = varied_keys(rows)
    arms = sorted({arm: 0 for row in rows for arm in row.arms}, key=FLOOR.__eq__)
    shown = led_by(leading_metric(rows).key, headlines())[:MAX_METRICS]
    title = f"{' / '.join(metric.title for metric in shown)}, by arm"
    cells = []
    for row in rows:
        by_arm = (row.arms.get(arm) for arm in arms)
        figures = [" / ".join(metric.text_of(one) for metric in shown) if one else "" for one in by_arm]
        cells.append([*(_word(row.setting.get(key, "")) for key in keys), *figures])
    print_table(make_table([*keys.values(), *arms], cells, list(keys.values()), title), labels=len(keys))
    measured = {key for row in rows for figures in row.arms.values() for key in figures}
    if others := [metric.title for metric in all_metrics() if metric not in shown and metric.key in measured]:
        echo(f"{CSV} has {', '.join(others)} as well")


def _print_spreads(spreads: list[SeedStatistics], shown: list[Metric]) -> None:
    """Print mean and standard deviation over the seeds, every metric a column."""
    rows, last = [], None
    for spread in spreads:
        label = label_of(spread.setting, short_names(spread.setting))
        cells = [spread.formatted(metric) for metric in shown]
        rows.append(["" if label == last else label, spread.arm, spread.seeds, *cells])
        last = label
    names = ["setting", "arm", "seeds", *(metric.title for metric in shown)]
    title = f"mean +- standard deviation over seeds; also in {SEEDS_CSV}"
    print_table(make_table(names, rows, ["setting", "arm"], title), labels=2)


def _word(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
