"""The results of a sweep side by side, from the manifests of the reports."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddm.loading import stored_experiment
from hpcddm.pipeline import REPORT, plan
from hpcddm.rundir import atomic, manifest
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.outcome import SETTLED
from hpcddm.sweep.index import Index
from hpcddm.sweep.settings import short_names
from hpcddm.unit_states import State, UnitStatus, activity, survey

CSV, PLOT = "table.csv", "table.png"
METRICS = {
    "fd": "FD",
    "kid": "KID",
    "agreement": "classifier agrees",
    "precision": "precision",
    "recall": "recall",
    "density": "density",
    "coverage": "coverage",
    "diversity": "diversity",
}
"""Reports that were made before some of them existed do not have those."""
FLOOR = "floor"
"""The arm of real images; it has no networks and no training."""


@dataclass(frozen=True)
class Result:
    """One setting: what it was, and its arms' metrics, empty unless its report is complete."""

    label: str
    setting: dict[str, Any]
    arms: dict[str, dict[str, Any]]
    state: str
    remark: str = ""
    """What the report says of experts that are missing."""


def results(index: Index, home: RunDir, states: Mapping[str, str]) -> list[Result]:
    """One row for each setting of the file; `states` says what is known of those that are not complete."""
    found = []
    for label in index.current:
        report = None if label in states else manifest.read(RunDir(home.root / label).unit(REPORT))
        if report is None:
            found.append(Result(label, index.settings[label], {}, states.get(label, "missing")))
            continue
        arms = report.results["arms"] | {FLOOR: report.results["floor"]}
        remark = report.results.get("remark", "")
        found.append(Result(label, index.settings[label], arms, State.COMPLETE, remark))
    return found


def varied_keys(rows: list[Result]) -> dict[str, str]:
    """The keys that differ among settings -> their short names."""
    keys = dict.fromkeys(key for row in rows for key in row.setting)
    return short_names(key for key in keys if len({repr(row.setting.get(key)) for row in rows}) > 1 or len(rows) == 1)


def write_csv(rows: list[Result], path: Path) -> None:
    """Write one line for each setting and arm; a setting without results has one line that says its state."""
    keys = list(dict.fromkeys(key for row in rows for key in row.setting))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    figures = [*METRICS, "images", "train_flops"]
    writer.writerow(["label", *keys, "state", "arm", *figures, "remark"])
    for row in rows:
        values = [row.setting.get(key, "") for key in keys]
        for arm, metrics in (row.arms or {"": {}}).items():
            writer.writerow(
                [row.label, *values, row.state, arm, *(metrics.get(key, "") for key in figures), row.remark]
            )
    atomic.write_text(path, file.getvalue(), durable=False)


def states_by_files(index: Index, home: RunDir) -> dict[str, str]:
    """What the files alone say of the settings that are not complete, by label."""
    found = {}
    for label in index.current:
        run = RunDir(home.root / label)
        states = survey(plan(stored_experiment(run)), run)
        if states[REPORT].state is not State.COMPLETE:
            found[label] = state_of(states, run, {})
    return found


def state_of(states: Mapping[str, UnitStatus], run: RunDir, jobs: Mapping[str, str]) -> str:
    """What keeps a setting from being complete, in words: a unit that failed, else one that runs, else one that waits.

    jobs: the states of its units that are in a queue.
    """
    words = [_word(status, run, jobs) for status in states.values() if status.state is not State.COMPLETE]
    return min(words, key=lambda word: word[0])[1]


def _word(status: UnitStatus, run: RunDir, jobs: Mapping[str, str]) -> tuple[int, str]:
    """The state of a unit that is not complete, and how much it matters, least first."""
    if status.key in jobs:
        return 1 + (jobs[status.key] == "pending"), f"{status.key} {jobs[status.key]}"
    work = activity(run, status.key)
    if work.is_running:
        return 1, f"{status.key} running"
    ending = (work.last.decision or work.last.outcome) if work.last else None
    if ending in SETTLED:
        return 0, f"{status.key} {ending}: {work.last.reason}"
    return 3, f"{status.key} {status.state}"
