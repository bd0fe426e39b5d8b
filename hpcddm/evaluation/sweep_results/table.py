"""Table of a sweep's results, from the manifests of the reports."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.config.sweep import short_names
from hpcddm.evaluation.metrics import all_metrics
from hpcddm.files import atomic
from hpcddm.jobs.outcome import SETTLED
from hpcddm.pipeline.plan import plan
from hpcddm.pipeline.unit_states import State, UnitStatus, activity, survey
from hpcddm.runs import manifest
from hpcddm.runs.layout import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.stored_results import figures_of
from hpcddm.runs.sweep_index import Index
from hpcddm.runs.unit_keys import REPORT

CSV, PLOT = "table.csv", "table.png"
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


def setting_results(index: Index, home: RunDir, states: Mapping[str, str]) -> list[SettingResult]:
    """Make one row for each setting of the file; states: those of the settings that are not complete, by label."""
    rows = []
    for label in index.current:
        report = None if label in states else manifest.read(RunDir(home.root / label).unit(REPORT))
        if report is None:
            rows.append(SettingResult(label, index.settings[label], {}, states.get(label, "missing")))
            continue
        arms = figures_of(report.results) | {FLOOR: report.results["floor"]}
        remark = report.results.get("remark", "")
        rows.append(SettingResult(label, index.settings[label], arms, State.COMPLETE, remark))
    return rows


def varied_keys(rows: list[SettingResult]) -> dict[str, str]:
    """Map the keys that differ among settings to their short names."""
    keys = dict.fromkeys(key for row in rows for key in row.setting)
    return short_names(key for key in keys if len({repr(row.setting.get(key)) for row in rows}) > 1 or len(rows) == 1)


def write_csv(rows: list[SettingResult], path: Path) -> None:
    """Write one line for each setting and arm; a setting without results has one line that says its state."""
    keys = list(dict.fromkeys(key for row in rows for key in row.setting))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    columns = [*(metric.key for metric in all_metrics()), "images", "train_flops"]
    writer.writerow(["label", *keys, "state", "arm", *columns, "remark"])
    for row in rows:
        values = [row.setting.get(key, "") for key in keys]
        for arm, figures in (row.arms or {"": {}}).items():
            cells = [figures.get(column, "") for column in columns]
            writer.writerow([row.label, *values, row.state, arm, *cells, row.remark])
    atomic.write_text(path, file.getvalue(), durable=False)


def states_by_files(index: Index, home: RunDir) -> dict[str, str]:
    """Read from the files the states of the settings that are not complete, by label."""
    incomplete = {}
    for label in index.current:
        run = RunDir(home.root / label)
        states = survey(plan(stored_experiment(run)), run)
        if states[REPORT].state is not State.COMPLETE:
            incomplete[label] = state_of(states, run, {})
    return incomplete


def state_of(states: Mapping[str, UnitStatus], run: RunDir, jobs: Mapping[str, str]) -> str:
    """Describe the unit that keeps a setting from being complete: one that failed, else one that runs or waits.

    jobs: the states of its units that are in a queue.
    """
    descriptions = [_describe(status, run, jobs) for status in states.values() if status.state is not State.COMPLETE]
    return min(descriptions, key=lambda ranked: ranked[0])[1]


def _describe(status: UnitStatus, run: RunDir, jobs: Mapping[str, str]) -> tuple[int, str]:
    """Return the rank of an incomplete unit's state, the most important first, and its description."""
    if status.key in jobs:
        return 1 + (jobs[status.key] == "pending"), f"{status.key} {jobs[status.key]}"
    work = activity(run, status.key)
    if work.is_running:
        return 1, f"{status.key} running"
    ending = (work.last.decision or work.last.outcome) if work.last else None
    if work.last and ending in SETTLED:
        return 0, f"{status.key} {ending}: {work.last.reason}"
    return 3, f"{status.key} {status.state}"
