"""Rows, CSV and picture of a sweep, with and without a scheduler to ask."""

import csv
import io
from dataclasses import replace
from types import SimpleNamespace

import click
import numpy as np
import pytest
from PIL import Image

from hpcddm.commands.sweep_table import print_sweep_table
from hpcddm.evaluation.metrics import all_metrics
from hpcddm.evaluation.sweep_results.plot import best_settings, write_plot
from hpcddm.evaluation.sweep_results.setting_results import SettingResult, write_csv
from hpcddm.launch.submission import store_experiment
from hpcddm.launch.sweep_runs import assign_owners
from hpcddm.runs import manifest
from hpcddm.runs.stored_experiment import with_relative_paths
from hpcddm.runs.sweep_index import SweepIndex, write_index
from hpcddm.runs.unit_keys import REPORT
from hpcddm.stages import table_job as stage
from tests.attempts import write_attempt
from tests.helpers import finish

DRAW = "draw/0000000-0000024"


MORE = {"precision": 0.71, "recall": 0.52, "density": 1.13, "coverage": 0.64, "diversity": 0.95}
"""Measures that reports did not always have."""


def result(label: str, fd: float | None, **setting) -> SettingResult:
    """A setting, complete if it has a distance."""
    arm = {"kid": 0.1, "agreement": 0.9, "images": 24} | MORE
    arms = {"monolith": arm | {"fd": fd}, "top-1": arm | {"fd": fd + 1}, "floor": arm | {"fd": 0.5}} if fd else {}
    return SettingResult(label, setting, arms, "complete" if fd else "report/all pending")


def picture(rows: list[SettingResult], path) -> np.ndarray:
    """The plot's pixels (H, W, 3)."""
    assert write_plot(rows, path, "trial")
    return np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("RGB"))


def table(path) -> list[dict[str, str]]:
    """Rows of the CSV."""
    return list(csv.DictReader(path.read_text().splitlines()))


def test_the_csv_has_a_line_for_each_arm_and_one_for_a_setting_that_is_not_there(tmp_path):
    write_csv([result("a=1", 2.0, a=1), result("a=2,b=x", None, a=2, b=["x", "y"])], tmp_path / "table.csv")
    rows = table(tmp_path / "table.csv")
    assert [row["arm"] for row in rows] == ["monolith", "top-1", "floor", ""]
    assert [row["fd"] for row in rows] == ["2.0", "3.0", "0.5", ""]
    assert rows[3]["state"] == "report/all pending" and rows[3]["b"] == "['x', 'y']" and rows[0]["b"] == ""


def test_every_measure_of_the_report_is_in_the_csv_and_the_terminal_says_so(tmp_path, capsys):
    old = result("a=2", 3.0, a=2)
    for arm in old.arms.values():
        for key in MORE:
            arm.pop(key, None)
    rows = [result("a=1", 2.0, a=1), old]
    write_csv(rows, tmp_path / "table.csv")
    first, *_, last = table(tmp_path / "table.csv")
    assert {metric.key for metric in all_metrics()} <= set(first) and {key: float(first[key]) for key in MORE} == MORE
    assert [last[key] for key in MORE] == [""] * len(MORE)
    assert (picture(rows, tmp_path / "table.png") != 255).any()
    print_sweep_table(rows)
    said = capsys.readouterr().out
    assert "table.csv has precision, recall, density, coverage, diversity as well" in said
    assert "2.00 / 0.1000 / 90.0%" in said and max(map(len, said.splitlines())) <= 140


@pytest.mark.parametrize("columns", [80, 45, 400])
def test_on_a_narrow_terminal_no_label_is_cut_and_no_number_is_broken(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    rows = [result(f"g={g},rate={r}", 10.0 + g, g=g, rate=r) for g in (1.0, 1.5, 2.0) for r in (0.0003, 0.001)]
    for row in rows:
        row.arms.update({arm: dict(row.arms["top-1"]) for arm in ("top-2", "per-trajectory", "threshold-0.05")})
    print_sweep_table([*rows, replace(rows[0], label="g=3.0", setting={"g": 3.0}, arms={}, state="train failed: disk")])
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert max(map(len, lines[:-2])) <= columns
    assert "\u2026" not in "".join(lines) and "g=3.0: train failed: disk" in lines
    head, *_ = (line for line in lines if "monolith" in line)
    parts = 1 if columns == 400 else len([line for line in lines if " g " in line])
    assert (parts > 1) == (columns < 400) and "per-trajectory" in "".join(lines)
    for row in rows:
        named = [line for line in lines if f" {row.setting['g']} " in line and f" {row.setting['rate']} " in line]
        assert len(named) == parts and all(" / " in line and not line.rstrip(" \u2502").endswith("/") for line in named)


LINES = [result(f"g={g}", 10 - g, g=g) for g in (1, 2, 3)]
BARS = [result(f"g={g},s={s}", 10 - g, g=g, s=s) for g in (1, 2) for s in ("a", "b")]


@pytest.mark.parametrize("rows", [LINES, BARS, LINES[:1], [*LINES, result("g=4", None, g=4)]])
def test_every_kind_of_sweep_has_a_picture_with_all_arms_in_their_colours(rows, tmp_path):
    pixels = picture(rows, tmp_path / "table.png").reshape(-1, 3).tolist()
    for colour in ((0x54, 0x53, 0xB0), (0xFB, 0x8E, 0x77)):
        assert pixels.count(list(colour)) > 50, colour


def test_the_kernel_distance_ranks_settings_where_it_ranks_the_arms_of_any(capsys):
    rows = [result(f"a={place}", 2.0 + place, a=place) for place in range(50)]
    for place, row in enumerate(rows):
        row.arms["monolith"]["kid"] = row.arms["top-1"]["kid"] = 0.5 - place / 100
    by_fd = [row.label for row in best_settings(rows)]
    assert by_fd == [f"a={place}" for place in range(40)]
    few = [replace(rows[0], leading_metric="kid"), *(replace(row, leading_metric="fd") for row in rows[1:])]
    assert [row.label for row in best_settings(few)] == [f"a={place}" for place in reversed(range(10, 50))]
    print_sweep_table(few[:2])
    said = capsys.readouterr().out
    assert "KID / FD / " in said and "0.5000 / 2.00 / 90.0%" in said


def test_the_last_job_writes_the_table_from_the_files_alone(sweep_runs, home):
    found = sweep_runs(1.0, 2.0)
    labels = [sweep_run.label for sweep_run in found]
    index = SweepIndex("trial", labels, {label: {"g": 1} for label in labels})
    assign_owners(found, index)
    for sweep_run in found:
        sweep_run.run.root.mkdir(parents=True)
        store_experiment(with_relative_paths(sweep_run.experiment, sweep_run.run), sweep_run.run)
    write_index(index, home)
    finish(found[0].units, found[0].run)
    arms = result("", 2.0).arms
    results = {"arms": {name: arms[name] for name in ("monolith", "top-1")}, "floor": arms["floor"], "remark": "7 of 8"}
    results["leading_metric"] = "fd"
    report = found[0].run.unit(REPORT)
    manifest.publish(report, replace(manifest.read(report), results=results))
    write_attempt(found[1].run, DRAW, 1, ended={"outcome": "failed", "reason": "no room"})
    done = stage.run(None, SimpleNamespace(run=home))
    assert done.results == {"settings": 2, "complete": 1}
    rows = table(home.root / "table.csv")
    assert [rows[0][key] for key in ("label", "arm", "remark")] == ["guidance=1.0", "monolith", "7 of 8"]
    assert rows[3]["state"] == f"{DRAW} failed: no room" and (home.root / "table.png").exists()
