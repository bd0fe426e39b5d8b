"""The budget curve: planted curves are told for what they are, rows add up, all arms of a budget cost the same."""

import math
import re
from collections import Counter
from fractions import Fraction
from itertools import chain, product

import numpy as np
import pytest
import yaml

from hpcddm.commands.expert_costs import NEVER_AHEAD
from hpcddm.config import Experiment
from hpcddm.errors import UserError
from hpcddm.loading import load_experiment, stored_experiment, within_run
from hpcddm.metrics.fd import frechet_distance
from hpcddm.metrics.statistics import Statistics
from hpcddm.networks import budgets
from hpcddm.pipeline.evaluate import arm_names
from hpcddm.pipeline.keys import REPORT
from hpcddm.pipeline.plan import plan
from hpcddm.pipeline.trainings import expert_training, part_of, router_training
from hpcddm.rundir import atomic
from hpcddm.rundir.layout import RunDir
from hpcddm.sweep.runs import identities, sweep_runs_of
from hpcddm.sweep.settings import read_sweep
from hpcddm.training import ema
from hpcddm.uncertainty.jackknife import Estimate
from tests.benchmarks import budget, budget_curve, budget_figure, budget_rows, budget_tables, budget_tuning
from tests.helpers import REPOSITORY, changed, write_experiment, write_source

BUDGETS = (30720, 61440, 122880, 245760)
PARTS = 10
FIGURE = REPOSITORY / "docs" / "results" / "budget.svg"


def planted(level, slope, seeds=3, noise=0.0, between=0.0, seed=0, arms=("top-1",)):
    """Rows whose log ratio is `level` at 86,889 images and changes by `slope` each time that the budget doubles.

    noise: standard error of a point by its samples; between: deviation of a seed's whole curve.
    """
    draw, rows = np.random.default_rng(seed), []
    middle = np.log2(BUDGETS).mean()
    for number in range(seeds):
        shift = draw.normal(0, between) if between else 0.0
        for images in BUDGETS:
            for arm in ("monolith", *arms):
                parts = (
                    draw.normal(0, noise * math.sqrt(PARTS), PARTS) if arm != "monolith" and noise else np.zeros(PARTS)
                )
                log_ratio = 0.0 if arm == "monolith" else level + shift + slope * (math.log2(images) - middle)
                fd = 20 * math.exp(log_ratio + parts.mean())
                without = 20 * np.exp(log_ratio + (parts.sum() - parts) / (PARTS - 1))
                rows.append(row(number, images, arm, fd, without))
    return rows


def row(seed, images, arm, fd, without):
    own = dict.fromkeys(budget_rows.COLUMNS, "1") | {"sweep": "budget", "identity": f"{seed}/{images}", "arm": arm}
    own |= {"seed": str(seed), "budget": str(images), "experts": "1" if arm == "monolith" else "4"}
    return own | {"fd": repr(float(fd)), "fd_without": " ".join(f"{value:.9g}" for value in without)}


def compared(rows, by_lines=False):
    (curve,) = budget_curve.curves(rows)
    shared = curve.of_all_seeds()
    at = budget_curve.places(shared)
    return budget_curve.compare(at, shared.fitted(at) if by_lines else shared.joined(at))


def sides(comparison):
    return [own.side for own in comparison.stretches]


@pytest.mark.parametrize("by_lines", [False, True])
def test_the_interval_of_a_planted_crossing_holds_it(by_lines):
    truth, held, shown = 2 ** (np.log2(BUDGETS).mean() + 0.2), 0, 0
    for seed in range(60):
        place = compared(planted(0.02, -0.1, noise=0.005, between=0.02, seed=seed), by_lines)
        if place.crossing is not None:
            shown += 1
            low, high = place.between
            held += low <= truth <= high
            assert low <= place.crossing <= high and (sides(place)[0], sides(place)[-1]) == ("behind", "ahead")
    assert shown >= 20 and held >= 0.9 * shown


@pytest.mark.parametrize("by_lines", [False, True])
def test_a_curve_that_does_not_cross_is_said_not_to(by_lines):
    for level, kind in ((0.3, "behind"), (-0.3, "ahead")):
        place = compared(planted(level, -0.02, noise=0.01, between=0.001), by_lines)
        assert place.crossing is None and str(place) == f"{kind} at all budgets"


def of_seeds(log_ratio, budgets=BUDGETS):
    """A curve of some seeds, whose samples are without error."""
    values = np.array(log_ratio, dtype=float)
    return budget_curve.Curve(
        4, "top-1", np.array(budgets, dtype=float), values, np.repeat(values[:, :, None], PARTS, 2)
    )


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
    at = np.geomspace(10000, 160000, 5)
    narrow, wide = 0.05, 9.0
    known = [
        Estimate(value, value - half, value + half)
        for value, half in ((0.1, narrow), (-0.1, wide), (0.2, narrow), (-0.1, wide), (-0.2, narrow))
    ]
    place = budget_curve.compare(at, known)
    assert sides(place) == ["behind", "undecided", "behind", "undecided", "ahead"]
    assert place.between == pytest.approx((10000, 160000)) and 40000 < place.crossing < 80000
    said = (
        "from 10,000 behind to 10,000, then undecided to 20,000, then behind to 40,000, then undecided to 80,000, then"
    )
    assert str(place) == f"{said} ahead to 160,000: crosses at 63,500 (10,000 to 160,000)"
    assert budget_curve.compare(at[:3], known[:3]).crossing is None
    open_ended = [Estimate(0.1, None, None), Estimate(0.1, math.nan, math.nan), Estimate(0.1, 0.0, 0.2)]
    assert [budget_curve.side(own) for own in open_ended] == ["undecided"] * 3


def test_the_change_from_the_first_to_the_last_budget_is_paired_within_seeds():
    held = 0
    for seed in range(60):
        rows = planted(0.1, -0.1, noise=0.02, between=0.5, seed=seed)
        change = budget_curve.curves(rows)[0].change()
        held += change.low <= -0.3 <= change.high
        assert change.high - change.low < 0.5, "however far the seeds are apart"
    assert held >= 54, "95 % of 60 are 57; fewer than 54 come by chance once in 40"


def longer(rows, fd):
    """Rows with those of seed 0 at another doubling."""
    added = [row(0, 491520, arm, own, [own] * PARTS) for arm, own in (("monolith", 20), ("top-1", fd))]
    return [*rows, *(one | {"sweep": "budget_longer"} for one in added)]


def test_a_longer_seed_adds_its_budget_to_the_curve_and_is_as_sure_as_one_seed_is():
    (curve,) = budget_curve.curves(longer(planted(0.0, -0.1, noise=0.001, between=0.05), 15))
    assert curve.budgets[-1] == 491520 and np.isnan(curve.log_ratio[1:, -1]).all()
    assert curve.of_all_seeds().budgets.tolist() == list(BUDGETS), "lines and crossings end where a seed does"
    last = curve.by_seeds(4)
    assert np.exp(last.value) == pytest.approx(0.75) == np.exp(curve.by_samples(4).value)
    # Student's t of 0.975 with 2 degrees of freedom.
    half = 4.302653 * np.sqrt(np.mean(np.var(curve.log_ratio[:, :4], axis=0, ddof=1)))
    assert (last.low, last.high) == pytest.approx((last.value - half, last.value + half), rel=1e-6)
    assert half == pytest.approx(math.sqrt(3) * (curve.by_seeds(0).high - curve.by_seeds(0).value))


def test_one_seed_has_the_interval_of_its_samples_alone():
    (curve,) = budget_curve.curves(planted(0.0, -0.1, seeds=1, noise=0.01))
    assert curve.by_seeds(0).low is None and curve.points()[0] == curve.by_samples(0)
    assert compared(planted(0.0, -0.1, seeds=1, noise=0.01)).crossing is not None
    assert [own.low for own in of_seeds([[0.1, 0.1]], BUDGETS[:2]).fitted(np.array([5e4]))] != [None]


def test_arms_without_two_shared_budgets_are_left_out_and_figures_without_a_ratio_named():
    rows = planted(0.1, 0.0, seeds=2)
    assert budget_curve.curves([own for own in rows if own["budget"] == "30720"]) == []
    apart = [own for own in rows if (int(own["budget"]) < 100000) == (own["seed"] == "0")]
    assert budget_curve.curves(apart) == []
    with pytest.raises(UserError, match=r"top-1, seed and budget \(0, 30720\): Lite0 KID -0.1 has no ratio"):
        budget_curve.curves([rows[1] | {"lite0_kid": "-0.1"}], "lite0_kid")


def test_two_rows_of_one_point_are_refused():
    rows = planted(0.0, -0.1)
    with pytest.raises(UserError, match="two rows; keep those of the frozen recipe"):
        budget_curve.curves([*rows, rows[1] | {"identity": "other", "guidance": "2.0"}])


def test_rows_of_several_machines_add_up_and_known_ones_stay(tmp_path):
    file = tmp_path / "results" / "budget.csv"
    rows = planted(0.0, -0.1, seeds=1)
    numbered = [own | {"fd": float(own["fd"])} for own in rows]
    assert budget_rows.add(numbered[4:], file) == [] and budget_rows.add(numbered[:4], file) == []
    whole = file.read_bytes()
    remarks = budget_rows.add([numbered[0] | {"fd": 99.0, "instructions": "AVX2"}], file)
    assert file.read_bytes() == whole and "FD 20.000 there (1), 99.000 now (AVX2)" in remarks[0]
    read = [(int(own["experts"]), int(own["budget"])) for own in budget_curve.read(file).values()]
    assert read == sorted(read) and len(read) == len(rows)
    lines = whole.decode().splitlines()
    file.write_text("\n".join([*lines, lines[-1]]) + "\n")
    assert len(budget_curve.read(file)) == len(rows), "what a merge left twice counts once"


def test_the_figure_and_the_tables_show_every_arm(tmp_path, capsys):
    rows = planted(0.0, -0.1, noise=0.01, arms=("oracle", "top-2"))
    for kind in ("svg", "pdf"):
        files = [tmp_path / f"{number}.{kind}" for number in (1, 2)]
        for file in files:
            budget_figure.draw(rows, file)
        assert files[0].read_bytes() == files[1].read_bytes()
    budget_tables.table(rows)
    budget_tables.fit(rows)
    said = capsys.readouterr().out
    assert "| 4 | top-2 | 30,720 |" in said and "| FD | 4 | oracle | -26% (-" in said
    assert said.count(": crosses at ") == 4, "by lines and by points"
    with pytest.raises(UserError, match="run more atoms"):
        budget_figure.draw([], tmp_path / "none.svg")


def test_the_page_and_the_figure_are_those_of_the_rows(tmp_path, capsys):
    known = budget_curve.read(budget.ROWS).values()
    rows = budget_tuning.of_choice(known)
    for show in (budget_tables.table, budget_tables.fit, budget_tables.ways, budget_tables.rulers):
        show(rows)
    budget_tables.hours(known)
    page = (REPOSITORY / "docs" / "results" / "budget.md").read_text().splitlines()
    said = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(said) > 100 and [line for line in said if line not in page] == []
    budget_figure.draw(rows, tmp_path / "again.svg")
    again, stands = (np.array(_marks(file.read_text())) for file in (tmp_path / "again.svg", FIGURE))
    assert len(again) > 100 and again == pytest.approx(stands, abs=0.01)


def test_plan_warns_as_far_as_both_numbers_of_experts_were_compared_in_all_seeds():
    rows = budget_tuning.of_choice(budget_curve.read(budget.ROWS).values())
    ways = [curve.of_all_seeds() for curve in budget_curve.curves(rows) if curve.arm != budget_curve.ORACLE]
    assert min(curve.budgets[-1] / curve.experts for curve in ways) == NEVER_AHEAD
    for curve in ways:
        for budget_of_all, point in zip(curve.budgets, curve.points(), strict=True):
            assert budget_of_all / curve.experts > NEVER_AHEAD or budget_curve.side(point) != "ahead"


def _marks(svg):
    """Places of the marks of an SVG; its letters depend on fonts."""
    return [(float(x), float(y)) for x, y in re.findall(r'<use xlink:href="#m\w+" x="([-0-9.]+)" y="([-0-9.]+)"', svg)]


def test_the_rulers_are_compared_pair_by_pair_and_sides_that_differ_are_named(capsys):
    rows = planted(0.1, 0.0, seeds=2, arms=("top-1", "top-2", "oracle"))
    # top-1 by half the KID of the monolith, top-2 by twice, where FD puts both behind and both alike.
    kid = {"monolith": 2.0, "top-1": 1.0, "top-2": 4.0, "oracle": 3.0}
    rows = [
        own | {"lite0_kid": repr(kid[own["arm"]]), "kid": "1", "fd": repr(float(own["fd"]) + kid[own["arm"]])}
        for own in rows
    ]
    budget_tables.rulers(rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("ways of drawing of one K, FD and Lite0 KID order 8 of 8 pairs alike (30,720: 2 of 2, ")
    assert lines[3].startswith("one way and the monolith, FD and Lite0 KID order 8 of 16 pairs alike (30,720: 2 of 4, ")
    assert len(lines) == 8 and lines[4] == "K=4 top-1, 30,720 images: FD ratio 1.050, Lite0 KID ratio 0.500"


def test_ways_of_drawing_are_paired_within_their_seeds(capsys):
    rows = planted(0.1, 0.0, seeds=2, between=0.3, arms=("top-1", "top-2", "per-trajectory"))
    twice = {"top-1": 2.0, "top-2": 4.0}
    rows = [own | {"fd": repr(float(own["fd"]) * twice.get(own["arm"], 1.0))} for own in rows]
    budget_tables.ways(rows)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * len(BUDGETS)
    assert lines[2].startswith("| 4 | 30,720 | top-1 | 0.500 | 0.50 to 0.50 | 2 of 2 | 1.000 |")
    assert lines[6].startswith("| 4 | 30,720 | top-2 | 0.250 | ")


def test_hours_count_a_training_to_its_end_once_and_every_drawing(capsys):
    rows = planted(0.0, -0.1, seeds=1)
    costs = {"sample_core_seconds": "720"}
    rows = [own | costs | {"train_core_seconds": str(int(own["budget"]) * 3600 // 245760)} for own in rows]
    again = rows[0] | {"processor": "other", "identity": "other"}
    budget_tables.hours([*rows, again])
    said = capsys.readouterr().out.splitlines()
    # Monolith, top-1, and the monolith elsewhere, of which only the smallest budget is drawn; five drawings.
    assert said == ["budget: 1.5 h of trainings, 0.5 h of samples", "all: 2.0 h of two cores"]


def tuned(fds, experts="4", sweep="budget_tuning", parts=(1,)):
    """Rows of the tuning: FD by rate, arm and guidance scale."""
    own = {"sweep": sweep, "experts": experts, "batch": "16"}
    return [
        row(0, 122880, arm, fd, [fd * part for part in parts]) | own | {"learning_rate": rate, "guidance": scale}
        for (rate, arm, scale), fd in fds.items()
    ]


GRID = {("0.001", "top-1", "1.0"): 10, ("0.001", "top-1", "2.0"): 9, ("0.001", "top-2", "1.0"): 20}
GRID |= {("0.001", "top-2", "2.0"): 25, ("0.002", "top-1", "1.0"): 8, ("0.002", "top-1", "2.0"): 30}
GRID |= {("0.002", "top-2", "1.0"): 40, ("0.002", "top-2", "2.0"): 50}


def test_the_tuning_chooses_a_training_for_all_arms_and_guidance_for_each(capsys):
    wider = {("0.001", "top-1", "3.0"): 7, ("0.001", "top-2", "3.0"): 30, ("0.002", "top-2", "3.0"): 1}
    budget_tuning.choose([*tuned(GRID), *tuned(wider, sweep="budget_guidance")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "K=4 rate 0.001, batch 16: FD 13.42 (geometric mean)", "wider scales do not choose the training"
    assert lines[2:] == [
        "K=4 top-1, 122,880 images: guidance 3 (1: 10.00, 2: 9.00, 3: 7.00)",
        "K=4 top-2, 122,880 images: guidance 1 (1: 20.00, 2: 25.00, 3: 30.00)",
    ]
    choice = budget_tuning.chosen(tuned(GRID))[4]
    assert [choice.guidance(arm, 122880) for arm in ("oracle", "full")] == [2.0, 1.0]


def test_a_scale_is_that_of_the_nearest_budget_where_scales_were_tried():
    trained = {("0.001", "top-1", "1.0"): 5, ("0.001", "top-1", "2.0"): 6}
    longer = [own | {"budget": "245760"} for own in tuned(trained, sweep="budget_scales")]
    choice = budget_tuning.chosen([*tuned(GRID), *longer])[4]
    assert [choice.guidance("top-1", budget) for budget in (30720, 122880, 245760, 491520)] == [2.0, 2.0, 1.0, 1.0]


def test_a_runner_up_stands_with_the_interval_of_its_excess(capsys):
    best = tuned({("0.001", "top-1", "1.0"): 10}, parts=(0.9, 1.1, 1, 1))
    budget_tuning.choose([*best, *tuned({("0.002", "top-1", "1.0"): 11}, parts=(1, 1, 1, 1))])
    excess = np.log(1.1) - np.log([0.9, 1.1, 1, 1])
    error = math.sqrt(3 * np.var(excess))
    # Student's t of 0.975 with 3 degrees of freedom.
    low, high = (math.expm1(math.log(1.1) + sign * 3.182446 * error) for sign in (-1, 1))
    assert f"batch 16: FD 11.00 [{low:+.0%} to {high:+.0%}] (geometric mean)" in capsys.readouterr().out


def test_a_tuning_that_is_not_complete_or_holds_a_row_twice_is_refused():
    rows = tuned(GRID)
    with pytest.raises(UserError, match=r"K=4: top-2 with rate 0.001 and batch 16 lacks guidance 2; run"):
        budget_tuning.chosen(rows[:3] + rows[4:])
    with pytest.raises(UserError, match="two rows of top-1 with rate 0.001, batch 16 and guidance 1; keep"):
        budget_tuning.chosen([*rows, rows[0]])
    with pytest.raises(UserError, match="no row of the tuning for K=8"):
        budget_tuning.choice_for(budget_tuning.chosen(rows), 8)


def test_the_curve_is_what_the_tuning_chose_and_another_recipe_is_refused():
    known = budget_curve.read(budget.ROWS).values()
    runs = [run for atom in (*budget.CURVE, *budget.LONGER) for run in atom.runs()]
    for run in runs:
        budget.check_recipe(run.experiment, known)
    for experts, override in (
        (4, {"evaluate__guidance": 9.0}),
        (4, {"experts__training__batch": 128}),
        (8, {"experts__overrides": [{"clusters": [7], "learning_rate": 0.004}]}),
    ):
        settings = next(run.experiment for run in runs if run.experiment.cluster.experts == experts)
        other = Experiment.model_validate(changed(settings.model_dump(mode="json"), **override))
        with pytest.raises(UserError, match=r"K=.* (tuning chose|several learning rates)"):
            budget.check_recipe(other, known)


def test_rows_of_another_recipe_are_no_part_of_the_curve():
    chosen = {"learning_rate": "0.001", "batch": "16"}
    scales = ("2.0", "1.0", "3.0")
    curve = [row(0, 30720, "top-1", 5, [5]) | chosen | {"guidance": scale} for scale in scales]
    own_scale = [{**tuned({("0.001", "top-1", "1.0"): 3}, sweep="budget_scales")[0], "budget": "30720"}]
    rows = [*tuned(GRID), *own_scale, *curve, curve[0] | {"learning_rate": "0.002"}]
    assert budget_tuning.of_choice(rows) == curve[1:2] and budget_tuning.of_choice(rows, one_scale=True) == curve[:1]
    with pytest.raises(UserError, match=r"K=4 top-1, 30720 images, seed 0: the tuning chose .* \(0.001, 16, 1.0\)"):
        budget_tuning.of_choice([own for own in rows if own is not curve[1]])


def test_the_wider_scales_are_those_of_the_chosen_trainings():
    choices = budget_tuning.chosen(budget_curve.read(budget.ROWS).values())
    swept = [read_sweep(name).experiments.values() for name in ("budget_guidance", "budget_scales")]
    for experiment in chain(*swept):
        (arm, *_) = arm_names(experiment)
        experts, *recipe = budget_rows.recipe_of(experiment, arm)
        assert tuple(recipe) == choices[experts].recipe


def test_tenths_that_are_left_out_hold_as_many_of_each_class():
    draw = np.random.default_rng(0)
    samples, real = draw.normal(size=(2, 200, 3))
    samples[np.arange(200) // 4 % 10 == 3] += 100
    parts = budget_rows.fd_without(samples, real, classes=4)
    assert min(range(10), key=parts.__getitem__) == 3 and len(parts) == 10
    own = np.arange(200) // 4 % 10 != 3
    whole = [Statistics.from_features(values[own]) for values in (samples, real)]
    assert parts[3] == frechet_distance(*whole)


def bought_to(number):
    """Images of the monolith's snapshots and of its whole training, to the n-th budget."""
    images = sorted(budget_rows.BUDGETS)[:number]
    return *images, images[-1]


def test_every_arm_is_drawn_at_the_one_scale_and_at_the_best_of_every_budget():
    choices = budget_tuning.chosen(budget_curve.read(budget.ROWS).values())
    drawn = Counter(
        (settings.seed, *recipe_and_arm(settings, arm), budget_rows.budget_of(settings), settings.evaluate.guidance)
        for name in budget_curve.CURVE_SWEEPS
        for settings in read_sweep(name).experiments.values()
        for arm in arm_names(settings)
    )
    places = [*product((0, 1, 2), BUDGETS), (0, 491520)]
    wanted = {
        (seed, experts, arm, images, choices[experts].guidance(arm, scaled))
        for experts, arms in ((1, ["monolith"]), *((k, [*budget_tuning.TUNED_ARMS, "oracle", "full"]) for k in (4, 8)))
        for arm, (seed, images) in product(arms, places)
        for scaled in ([budget_tuning.TUNED_BUDGET] if arm == "full" else [budget_tuning.TUNED_BUDGET, images])
        if arm != "full" or images in (61440, 245760)
    }
    assert set(drawn) == wanted and set(drawn.values()) == {1}


def recipe_and_arm(settings, arm):
    return budget_rows.recipe_of(settings, arm)[0], budget_rows.shown_arm(settings, arm)


def test_all_arms_cost_the_same_at_every_budget():
    costs, bought = {}, {}
    for name in ("budget", "budget_longer", "budget_tuning", "budget_guidance", "budget_scales"):
        for experiment in read_sweep(name).experiments.values():
            trained, experts = experiment.experts.training, experiment.cluster.experts
            if experts == 1:
                costs.setdefault(name, set()).add((*trained.snapshots, trained.images))
                continue
            routed = router_training(experiment)
            numbers = [(routed.images, trained.images), *zip(routed.snapshots, trained.snapshots, strict=True)]
            assert {router / images for router, images in numbers} == {0.25}
            assert all(images % (trained.batch * experts) == 0 for _, images in numbers)
            assert expert_training(experiment, 0).images * experts == trained.images
            known = experts, trained.images
            if known not in bought:
                bought[known] = budgets.monolith_training(experiment)
            costs.setdefault(name, set()).add((*bought[known].snapshots, bought[known].images))
    assert costs == {
        "budget": {bought_to(4)},
        "budget_longer": {(526848, 526848), bought_to(5)},
        "budget_tuning": {(131712,)},
        "budget_guidance": {(131712,)},
        "budget_scales": {bought_to(4), bought_to(5)},
    }, "the monolith of every K is the same, to half a batch, and so is the one that is trained by itself"
    assert {*budget_rows.BUDGETS} == {images for own in costs.values() for bought in own for images in bought}


@pytest.mark.parametrize("batch", [8, 16, 64])
def test_the_average_forgets_by_a_tenth_of_the_images_seen_at_every_budget(batch):
    total = load_experiment("budget").experts.training
    part = part_of(total, Fraction(batch, total.batch))
    for images in (own // total.batch * batch for own in BUDGETS):
        assert ema.update_weight(images, part) == pytest.approx(1 - 0.5 ** (batch / (0.1 * images)), rel=1e-12)


def test_a_run_has_the_identity_by_which_the_sweep_plans_it(tmp_path):
    write_source(tmp_path / "images")
    write_experiment(tmp_path)
    values = {"name": "trial", "experiment": "tiny.yaml", "grid": {"evaluate.guidance": [1.0, 2.0]}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(values))
    planned = sweep_runs_of(read_sweep(str(tmp_path / "sweep.yaml")), RunDir(tmp_path / "elsewhere" / "sweeps"))
    for one in planned:
        atomic.write_json(one.run.experiment, within_run(one.experiment, one.run).model_dump(mode="json"))
        assert identities(plan(stored_experiment(one.run)))[REPORT] == one.identities[REPORT]
    assert len({one.identities[REPORT] for one in planned}) == 2


def test_every_atom_is_a_part_of_its_sweep():
    parts = {}
    for atom in budget.ORDER:
        sweep = read_sweep(atom.sweep)
        own = budget.matching(sweep, atom.only)
        assert budget.matching(sweep, sorted(own)) == own, "settings that lack rows are run by their labels"
        assert not own & parts.setdefault(atom.sweep, set())
        parts[atom.sweep] |= own
    assert {name: len(own) for name, own in parts.items()} == {name: len(read_sweep(name).settings) for name in parts}
