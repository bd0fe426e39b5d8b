"""Statistics over the seeds of a sweep: mean and standard deviation of every metric."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.evaluation.metrics import all_metrics
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.sweep_results.setting_results import SettingResult, write_lines

SEED = "seed"
SEEDS_CSV = "seeds.csv"


@dataclass(frozen=True)
class SeedStatistics:
    """Metrics of one arm of one setting over its seeds."""

    setting: dict[str, Any]
    """Setting without its seed."""
    arm: str
    seeds: int
    figures: dict[str, tuple[float, float | None]]
    """Key of a metric -> mean and sample standard deviation, None for one seed alone."""

    def formatted(self, metric: Metric) -> str:
        """Format a metric as '64.4% +- 2.0'; '' where the reports do not have it."""
        if metric.key not in self.figures:
            return ""
        mean, deviation = self.figures[metric.key]
        beside = "" if deviation is None else f" +- {metric.text(deviation).removesuffix('%')}"
        return metric.text(mean) + beside


def statistics_over_seeds(rows: Iterable[SettingResult]) -> list[SeedStatistics]:
    """Compute one entry for each setting and arm, in the rows' order; none for a single seed."""
    rows = list(rows)
    if len({row.setting.get(SEED) for row in rows}) < 2:
        return []
    groups: dict[str, tuple[dict[str, Any], dict[str, list[dict[str, float]]]]] = {}
    for row in rows:
        setting = {key: value for key, value in row.setting.items() if key != SEED}
        _, arms = groups.setdefault(repr(setting), (setting, {}))
        for arm, figures in row.arms.items():
            arms.setdefault(arm, []).append(figures)
    return [_spread(setting, arm, by_seed) for setting, arms in groups.values() for arm, by_seed in arms.items()]


def _spread(setting: dict[str, Any], arm: str, by_seed: list[dict[str, float]]) -> SeedStatistics:
    figures = {}
    for metric in all_metrics():
        values = [measured[metric.key] for measured in by_seed if measured.get(metric.key) is not None]
        # A seed whose figure is not finite would make the mean of the others look good.
        if values and len(values) == len(by_seed):
            deviation = statistics.stdev(values) if len(values) > 1 else None
            figures[metric.key] = statistics.fmean(values), deviation
    return SeedStatistics(setting, arm, len(by_seed), figures)


def write_seeds(spreads: list[SeedStatistics], path: Path) -> None:
    """Write one line for each setting and arm."""
    keys = list(dict.fromkeys(key for spread in spreads for key in spread.setting))
    metrics = [metric.key for metric in all_metrics()]
    columns = [column for metric in metrics for column in (metric, f"{metric}_sd")]
    lines: list[list[object]] = [[*keys, "arm", "seeds", *columns]]
    for spread in spreads:
        setting = [spread.setting.get(key, "") for key in keys]
        pairs = [spread.figures.get(metric, ("", "")) for metric in metrics]
        lines.append([*setting, spread.arm, spread.seeds, *(value for pair in pairs for value in pair)])
    write_lines(lines, path)
