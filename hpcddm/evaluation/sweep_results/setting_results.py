"""Table of a sweep's results, from the manifests of the reports."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.config.sweep import REPORTED, short_names
from hpcddm.evaluation.metrics import FID, all_metrics, primary
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.files import atomic
from hpcddm.pipeline.state import QUEUED, STATE_AFTER, State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import UnitStatus, state_by_records, survey_units
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.stored_results import EVALUATIONS, arm_metrics
from hpcddm.runs.sweep_index import SweepIndex
from hpcddm.runs.unit_keys import REPORT

CSV, PLOT, TRADEOFFS = "table.csv", "table.png", "tradeoffs.png"
FLOOR = "floor"
"""Name of the arm of real images, without networks and training."""


@dataclass(frozen=True)
class SettingResult:
    """Results of one setting: its arms' values by the metrics' keys, empty unless its report is complete."""

    label: str
    setting: dict[str, Any]
    arms: dict[str, dict[str, float]]
    state: str
    remark: str = ""
    """Remark of the report on missing experts."""
    leading_metric: str = ""
    """Key of the metric that ranks its arms; '' unless its report is complete."""
    warnings: tuple[str, ...] = ()
    """What its report says against its own figures."""


@dataclass(frozen=True)
class Blocker:
    """Unit that keeps a setting from being complete, with its state and the reason."""

    unit: str
    state: State
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.unit} {self.state}: {self.reason}" if self.reason else f"{self.unit} {self.state}"


def setting_results(index: SweepIndex, home: RunDir, blockers: Mapping[str, Blocker]) -> list[SettingResult]:
    """Make one row for each setting of the file; blockers: of the settings that are not complete, by label."""
    rows = []
    for label in index.current:
        report = None if label in blockers else manifest.read(RunDir(home.root / label).unit(REPORT))
        if report is None:
            rows.append(SettingResult(label, index.settings[label], {}, str(blockers.get(label, State.MISSING))))
            continue
        arms = arm_metrics(report.results) | {FLOOR: report.results["floor"]}
        if reported := index.settings[label].get(REPORTED):
            arms = {arm: arms[arm] for arm in (reported, FLOOR)}
        remark = report.results.get("remark", "")
        lead, warnings = report.results["leading_metric"], tuple(report.results.get("warnings", ()))
        rows.append(SettingResult(label, index.settings[label], arms, State.COMPLETE, remark, lead, warnings))
    return rows


def leading_metric(rows: list[SettingResult]) -> Metric:
    """Return the metric that ranks the settings: FD, or KID if that ranks the arms of any of them."""
    named = {row.leading_metric for row in rows}
    return next((metric for metric in all_metrics()[1:] if metric.key in named), primary())


def best_by_arm(rows: list[SettingResult]) -> dict[str, str]:
    """Return the label of the best setting of every arm by the metric that leads; none until all are complete."""
    if not all(row.arms for row in rows):
        return {}
    metric, best = leading_metric(rows), {}
    for arm in dict.fromkeys(arm for row in rows for arm in row.arms if arm != FLOOR):
        with_arm = {row.label: row.arms[arm] for row in rows if metric.key in row.arms.get(arm, {})}
        ranks = {label: metric.better.rank(figures[metric.key]) for label, figures in with_arm.items()}
        if ranks:
            best[arm] = min(ranks, key=ranks.__getitem__)
    return best


def varied_keys(rows: list[SettingResult]) -> dict[str, str]:
    """Map the keys that differ among settings to their short names."""
    keys = dict.fromkeys(key for row in rows for key in row.setting)
    return short_names(key for key in keys if len({repr(row.setting.get(key)) for row in rows}) > 1 or len(rows) == 1)


def write_csv(rows: list[SettingResult], path: Path) -> None:
    """Write one line for each setting and arm; a setting without results has one line with its state."""
    keys = list(dict.fromkeys(key for row in rows for key in row.setting))
    full_keys = {key for row in rows for figures in row.arms.values() for key in figures if "@" in key or key == FID}
    columns = [*(metric.key for metric in all_metrics()), "images", "train_flops", EVALUATIONS, *sorted(full_keys)]
    lines: list[list[object]] = [["label", *keys, "state", "arm", *columns, "remark"]]
    for row in rows:
        values = [row.setting.get(key, "") for key in keys]
        for arm, figures in (row.arms or {"": {}}).items():
            cells = [figures.get(column, "") for column in columns]
            lines.append([row.label, *values, row.state, arm, *cells, row.remark])
    write_lines(lines, path)


def write_lines(lines: Iterable[Iterable[object]], path: Path) -> None:
    """Write a CSV file, not synced: the same command writes it again."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    atomic.write_text(path, file.getvalue(), durable=False)


def blockers_by_files(index: SweepIndex, home: RunDir) -> dict[str, Blocker]:
    """Read from the files what keeps settings from being complete, by label; none for complete settings."""
    blockers = {}
    for label in index.current:
        run = RunDir(home.root / label)
        states = survey_units(plan_units(stored_experiment(run)), run)
        if states[REPORT].state is not State.COMPLETE:
            blockers[label] = blocker_of(states, run, {})
    return blockers


def blocker_of(states: Mapping[str, UnitStatus], run: RunDir, jobs: Mapping[str, State]) -> Blocker:
    """Return the unit that keeps a setting from being complete: one that failed, else one that runs or waits.

    jobs: the states of its units that are in a queue.
    """
    ranked = [_ranked(status, run, jobs) for status in states.values() if status.state is not State.COMPLETE]
    return min(ranked, key=lambda pair: pair[0])[1]


def _ranked(status: UnitStatus, run: RunDir, jobs: Mapping[str, State]) -> tuple[int, Blocker]:
    """Return the rank of an incomplete unit's state, the most important first, and the unit."""
    if status.key in jobs:
        return 1 + (jobs[status.key] in QUEUED), Blocker(status.key, jobs[status.key])
    state, reason = state_by_records(status, run)
    if state in STATE_AFTER.values():
        return 0, Blocker(status.key, state, reason)
    return (1 if state == State.RUNNING else 3), Blocker(status.key, state)
