"""Analysis of the budget curve: planted curves are told for what they are, and the page is that of the rows."""

import re

import numpy as np
import pytest

from hpcddm.evaluation.result_warnings import NO_GAIN_IMAGES
from tests.benchmarks import budget, budget_curve, budget_figure, budget_tables, budget_tuning
from tests.benchmarks.planted import BUDGETS, PARTS, planted
from tests.helpers import REPOSITORY

RESULTS = REPOSITORY / "docs" / "results"
BY_LINES = pytest.mark.parametrize("by_lines", [False, True])


def compared(rows, by_lines=False):
    (curve,) = budget_curve.curves(rows)
    shared = curve.of_all_seeds()
    at = budget_curve.places(shared)
    return budget_curve.compare(at, shared.fitted(at) if by_lines else shared.joined(at))


def sides(comparison):
    return [own.side for own in comparison.stretches]


@BY_LINES
def test_the_interval_of_a_planted_crossing_holds_it_and_curves_that_do_not_cross_are_said_not_to(by_lines):
    truth, held, shown = 2 ** (np.log2(BUDGETS).mean() + 0.2), 0, 0
    for seed in range(40):
        place = compared(planted(0.02, -0.1, noise=0.005, between=0.02, seed=seed), by_lines)
        if place.crossing is not None:
            shown += 1
            low, high = place.between
            held += low <= truth <= high
            assert low <= place.crossing <= high and (sides(place)[0], sides(place)[-1]) == ("behind", "ahead")
    assert shown >= 13 and held >= 0.9 * shown
    for level, kind in ((0.3, "behind"), (-0.3, "ahead")):
        place = compared(planted(level, -0.02, noise=0.01, between=0.001), by_lines)
        assert place.crossing is None and str(place) == f"{kind} at all budgets"


def of_seeds(log_ratio):
    """A curve of some seeds, whose samples are without error."""
    values, budgets = np.array(log_ratio, dtype=float), np.array(BUDGETS, dtype=float)
    return budget_curve.Curve(4, "top-1", budgets, values, np.repeat(values[:, :, None], PARTS, 2))


@pytest.mark.parametrize("seeds", [2, 3])
def test_points_of_an_arm_that_equals_the_monolith_are_seldom_said_to_differ_and_lines_more_often(seeds):
    draw, by_points, by_lines = np.random.default_rng(0), 0, 0
    for _ in range(200):
        # About the deviations of the rows: seeds as a whole, and each budget of a seed.
        curve = of_seeds(draw.normal(0, 0.1, (seeds, 1)) + draw.normal(0, 0.08, (seeds, 4)))
        at = np.geomspace(BUDGETS[0], BUDGETS[-1], 41)
        by_points += sides(budget_curve.compare(at, curve.joined(at))) != ["undecided"]
        by_lines += sides(budget_curve.compare(at, curve.fitted(at))) != ["undecided"]
    assert by_points <= 16, "5 % of 200 are 10; more than 16 come by chance once in 40"
    assert by_lines > 2 * by_points + 16


def test_the_page_and_the_figure_are_those_of_the_rows(tmp_path, capsys):
    rows = budget_tuning.of_choice(budget_curve.read(budget.ROWS).values())
    for show in (budget_tables.table, budget_tables.fit, budget_tables.ways, budget_tables.rulers):
        show(rows)
    page = [line for name in ("budget.md", "budget-tables.md") for line in (RESULTS / name).read_text().splitlines()]
    said = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(said) > 100 and [line for line in said if line not in page] == []
    files = [tmp_path / f"{number}.svg" for number in (1, 2)]
    for file in files:
        budget_figure.draw(rows, file)
    assert files[0].read_bytes() == files[1].read_bytes()
    again, there = (np.array(_marks(file.read_text())) for file in (files[0], RESULTS / "budget.svg"))
    assert len(again) > 100 and again == pytest.approx(there, abs=0.01)


def _marks(svg):
    """Places of the marks of an SVG; its letters depend on fonts."""
    return [(float(x), float(y)) for x, y in re.findall(r'<use xlink:href="#m\w+" x="([-0-9.]+)" y="([-0-9.]+)"', svg)]


def test_plan_warns_as_far_as_both_numbers_of_experts_were_compared_in_all_seeds():
    rows = budget_tuning.of_choice(budget_curve.read(budget.ROWS).values())
    ways = [curve.of_all_seeds() for curve in budget_curve.curves(rows) if curve.arm != budget_curve.ORACLE]
    assert min(curve.budgets[-1] / curve.experts for curve in ways) == NO_GAIN_IMAGES
    for curve in ways:
        for budget_of_all, point in zip(curve.budgets, curve.points(), strict=True):
            assert budget_of_all / curve.experts > NO_GAIN_IMAGES or budget_curve.side(point) != "ahead"
