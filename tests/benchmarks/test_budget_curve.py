"""Analysis of the budget curve: planted curves are told for what they are, and the page is that of the rows."""

import math
import re

import numpy as np
import pytest

from hpcddm.errors import UserError
from hpcddm.evaluation.result_warnings import NO_GAIN_IMAGES
from hpcddm.evaluation.statistics.jackknife import IntervalEstimate
from tests.benchmarks import budget, budget_curve, budget_figure, budget_tables, budget_tuning
from tests.benchmarks.planted import BUDGETS, PARTS, planted, row
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


def test_seeds_that_agree_by_chance_at_one_budget_show_nothing():
    curve = of_seeds([[0.3, 0.3, 0.1, 0.5], [-0.1, 0.3, 0.4, 0.1]])
    assert curve.by_seeds(1).low < 0 < curve.by_seeds(1).high
    assert {budget_curve.side(point) for point in curve.points()} == {"undecided"}


def test_what_is_between_is_listed_and_only_unlike_ends_make_a_crossing():
    at, narrow, wide = np.geomspace(10000, 160000, 5), 0.05, 9.0
    values = ((0.1, narrow), (-0.1, wide), (0.2, narrow), (-0.1, wide), (-0.2, narrow))
    known = [IntervalEstimate(value, value - half, value + half) for value, half in values]
    said = (
        "from 10,000 behind to 10,000, then undecided to 20,000, then behind to 40,000, then undecided to 80,000,"
        " then ahead to 160,000: crosses at 63,500 (10,000 to 160,000)"
    )
    assert str(budget_curve.compare(at, known)) == said
    assert budget_curve.compare(at[:3], known[:3]).crossing is None
    ends = ((None, None), (math.nan, math.nan), (0.0, 0.2))
    assert [budget_curve.side(IntervalEstimate(0.1, *own)) for own in ends] == ["undecided"] * 3


def test_the_change_from_the_first_to_the_last_budget_is_paired_within_seeds():
    held = 0
    for seed in range(60):
        change = budget_curve.curves(planted(0.1, -0.1, noise=0.02, between=0.5, seed=seed))[0].change()
        held += change.low <= -0.3 <= change.high
        assert change.high - change.low < 0.5, "however far the seeds are apart"
    assert held >= 54, "95 % of 60 are 57; fewer than 54 come by chance once in 40"


def test_a_longer_seed_adds_its_budget_to_the_curve_and_is_as_sure_as_one_seed_is():
    added = [row(0, 491520, arm, own, [own] * PARTS) for arm, own in (("monolith", 20), ("top-1", 15))]
    rows = [*planted(0.0, -0.1, noise=0.001, between=0.05), *(one | {"sweep": "budget_longer"} for one in added)]
    (curve,) = budget_curve.curves(rows)
    assert curve.budgets[-1] == 491520 and np.isnan(curve.log_ratio[1:, -1]).all()
    assert curve.of_all_seeds().budgets.tolist() == list(BUDGETS), "lines and crossings end where a seed does"
    last = curve.by_seeds(4)
    assert np.exp(last.value) == pytest.approx(0.75) == np.exp(curve.by_samples(4).value)
    # Student's t of 0.975 with 2 degrees of freedom.
    half = 4.302653 * np.sqrt(np.mean(np.var(curve.log_ratio[:, :4], axis=0, ddof=1)))
    assert (last.low, last.high) == pytest.approx((last.value - half, last.value + half), rel=1e-6)
    assert half == pytest.approx(math.sqrt(3) * (curve.by_seeds(0).high - curve.by_seeds(0).value))
    (alone,) = budget_curve.curves(planted(0.0, -0.1, seeds=1, noise=0.01))
    assert alone.by_seeds(0).low is None and alone.points()[0] == alone.by_samples(0)


def test_arms_without_two_shared_budgets_are_left_out_and_rows_that_make_no_curve_named(tmp_path):
    rows = planted(0.1, 0.0, seeds=2)
    assert budget_curve.curves([own for own in rows if own["budget"] == "30720"]) == []
    apart = [own for own in rows if (int(own["budget"]) < 100000) == (own["seed"] == "0")]
    assert budget_curve.curves(apart) == []
    with pytest.raises(UserError, match=r"top-1, seed and budget \(0, 30720\): Lite0 KID -0.1 has no ratio"):
        budget_curve.curves([rows[1] | {"lite0_kid": "-0.1"}], "lite0_kid")
    with pytest.raises(UserError, match="two rows; keep those of the frozen recipe"):
        budget_curve.curves([*rows, rows[1] | {"identity": "other", "guidance": "2.0"}])
    with pytest.raises(UserError, match="run more of the sweeps"):
        budget_figure.draw([], tmp_path / "none.svg")


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


def test_the_rulers_are_compared_pair_by_pair_and_ways_of_drawing_within_their_seeds(capsys):
    rows = planted(0.1, 0.0, seeds=2, arms=("top-1", "top-2", "oracle"))
    # top-1 by half the KID of the monolith, top-2 by twice, where FD puts both behind and both alike.
    kid = {"monolith": 2.0, "top-1": 1.0, "top-2": 4.0, "oracle": 3.0}
    of_arm = [(own, kid[own["arm"]]) for own in rows]
    budget_tables.rulers(
        [own | {"lite0_kid": repr(one), "kid": "1", "fd": repr(float(own["fd"]) + one)} for own, one in of_arm]
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("ways of drawing of one K, FD and Lite0 KID order 8 of 8 pairs alike (30,720: 2 of 2, ")
    assert lines[3].startswith("one way and the monolith, FD and Lite0 KID order 8 of 16 pairs alike (30,720: 2 of 4, ")
    assert len(lines) == 8 and lines[4] == "K=4 top-1, 30,720 images: FD ratio 1.050, Lite0 KID ratio 0.500"
    rows, twice = planted(0.1, 0.0, 2, between=0.3, arms=("top-1", "top-2", "per-trajectory")), {"top-1": 2, "top-2": 4}
    budget_tables.ways(
        [own | {"fd": repr(float(own["fd"]) * twice.get(own["arm"], 1)), "lite0_kid": ""} for own in rows]
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * len(BUDGETS) and lines[2].endswith(" | 0 of 2 |  |  |  |")
    assert lines[2].startswith("| 4 | 30,720 | top-1 | 0.500 | 0.50 to 0.50 | 2 of 2 | 1.000 |")
    assert lines[6].startswith("| 4 | 30,720 | top-2 | 0.250 | ")
