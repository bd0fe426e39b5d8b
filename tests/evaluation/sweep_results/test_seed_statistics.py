import csv
import math

import pytest

from hpcddm.commands.sweep_table import print_sweep_table
from hpcddm.evaluation.sweep_results.seed_statistics import statistics_over_seeds, write_seeds
from hpcddm.evaluation.sweep_results.setting_results import SettingResult


def row(seed, steps, fd, arms=("top-1",), lead="fd"):
    metrics = {"fd": fd, "kid": 1.0, "agreement": 0.5}
    setting = {"seed": seed, "evaluate.steps": steps}
    return SettingResult(f"{seed}-{steps}", setting, dict.fromkeys(arms, metrics), "complete", leading_metric=lead)


def test_mean_and_deviation_are_those_of_the_seeds_of_one_setting():
    few, many = statistics_over_seeds([row(0, 4, 1.0), row(1, 4, 3.0), row(0, 8, 5.0), row(1, 8, 5.0)])
    assert few.setting == {"evaluate.steps": 4} and few.seeds == 2 and many.figures["fd"] == (5.0, 0.0)
    mean, deviation = few.figures["fd"]
    assert mean == 2.0 and deviation == pytest.approx(math.sqrt(2))


def test_one_seed_alone_has_no_spread_and_an_unfinished_one_does_not_count():
    assert statistics_over_seeds([row(0, 4, 1.0), row(0, 8, 2.0)]) == []
    (spread,) = statistics_over_seeds([row(0, 4, 1.0), row(1, 4, 9.0, arms=())])
    assert spread.seeds == 1 and spread.figures["fd"] == (1.0, None)


def test_the_file_holds_a_line_for_each_setting_and_arm(tmp_path):
    write_seeds(statistics_over_seeds([row(0, 4, 1.0, ("a", "b")), row(1, 4, 2.0, ("a", "b"))]), tmp_path / "seeds.csv")
    lines = list(csv.DictReader((tmp_path / "seeds.csv").read_text().splitlines()))
    assert [(line["arm"], line["seeds"], line["fd"]) for line in lines] == [("a", "2", "1.5"), ("b", "2", "1.5")]


def test_over_seeds_the_terminal_shows_a_line_for_each_setting_and_arm(capsys):
    print_sweep_table([row(0, 4, 1.0), row(1, 4, 2.0), row(0, 8, 5.0), row(1, 8, 9.0, arms=())])
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("1.50 +- 0.71", "steps=8", "5.00", "1-8: complete"))
