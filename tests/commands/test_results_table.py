"""The table that `hpcddm submit` ends with."""

import click

from hpcddm.commands.results_table import COUNTS, print_results_table
from hpcddm.evaluation.metrics import columns

ARM = {"fd": 8.451, "kid": 0.4262, "agreement": 0.8906, "precision": 0.812, "recall": 0.634, "density": 1.234,
       "coverage": 0.765, "diversity": 0.953, "images": 2000, "train_flops": 1.94e13}  # fmt: skip
MEASURED = "8.45 0.4262 89.1% 81.2% 63.4% 1.23 76.5% 0.95 2,000 1.94e+13"
LED_BY_FD = {"leading_metric": "fd", "few_images": {}}


def test_a_row_has_every_measure_of_the_table_that_the_arm_has(capsys):
    few = {key: ARM[key] for key in ("fd", "kid", "agreement", "images", "train_flops")}
    floor = {key: value for key, value in ARM.items() if key != "train_flops"}
    arms = {"monolith": ARM, "top-1": few}
    print_results_table({"arms": arms, "floor": floor, "remark": "7 of 8 experts"} | LED_BY_FD)
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
    measured = MEASURED.split()
    assert rows["monolith"] == measured and len(measured) == len(columns()) + len(COUNTS)
    assert rows["top-1"] == "8.45 0.4262 89.1% 2,000 1.94e+13".split()
    assert rows["floor:"] == ["real", "images", *measured[:-1]]
    assert lines[-1] == "made with 7 of 8 experts" and max(map(len, lines)) <= 114


def test_on_a_terminal_of_80_columns_figures_that_do_not_fit_go_below(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    arms = {"monolith": ARM, "per-trajectory": ARM}
    print_results_table({"arms": arms, "floor": ARM, "warnings": ["noise"]} | LED_BY_FD)
    said = click.unstyle(capsys.readouterr().out)
    assert max(len(line.rstrip()) for line in said.splitlines()) <= 80 and said.endswith("warning: noise\n")
    shown = [line.split() for line in said.splitlines() if "per-trajectory" in line]
    assert len(shown) == 2 and [*shown[0][1:], *shown[1][1:]] == MEASURED.split()


def test_figures_by_other_extractors_are_listed_by_their_full_keys(capsys):
    own = {"fd@own": 8.451, "recall-10000@own": 0.634, "recall-50000@own": 0.71}
    other = {"fd@pixels-4": 647.41, "recall-10000@pixels-4": 0.214, "coverage-10000@pixels-4": 0.5}
    print_results_table({"arms": {"top-1": ARM | own | other}, "floor": ARM | own | other} | LED_BY_FD)
    said = capsys.readouterr().out
    listed = said[said.index("by other extractors") :]
    assert [word for word in listed.split() if "@" in word] == ["fd@pixels-4", "recall-10000@pixels-4"]
    assert "647.41" in listed and "21.4%" in listed
