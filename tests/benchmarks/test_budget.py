"""Rows of the budget curve: they add up, the tuning is held to, all arms of a budget cost the same."""

from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from hpcddm.loading.load_experiment import load_experiment
from hpcddm.loading.load_sweep import read_sweep
from hpcddm.runs.unit_keys import MONOLITH, ROUTER, expert_key
from hpcddm.runs.unit_training import resolve_training, scale_training
from hpcddm.stages.evaluation.draw import arm_names
from hpcddm.training import ema, flops_budget
from tests.benchmarks import budget, budget_curve, budget_rows, budget_tuning
from tests.benchmarks.planted import BUDGETS, row

planned_sweep = cache(read_sweep)


def tuned(fds, sweep="budget_tuning", parts=(1,)):
    """Rows of the tuning of K=4: FD by rate, arm and guidance scale."""
    own = {"sweep": sweep, "experts": "4", "batch": "16"}
    return [
        row(0, 122880, arm, fd, [fd * part for part in parts]) | own | {"learning_rate": rate, "guidance": scale}
        for (rate, arm, scale), fd in fds.items()
    ]


def test_every_arm_is_drawn_as_the_tuning_chose_at_the_one_scale_and_at_the_best_of_every_budget():
    choices = budget_tuning.chosen(budget_curve.read(budget.ROWS).values())
    drawn = Counter(
        (settings.seed, *budget_rows.recipe_of(settings, arm), budget_rows.shown_arm(settings, arm))
        + (budget_rows.budget_of(settings), settings.evaluate.guidance)
        for name in budget_curve.CURVE_SWEEPS
        for settings in planned_sweep(name).experiments.values()
        for arm in arm_names(settings)
    )
    places = [*product((0, 1, 2), BUDGETS), (0, 491520)]
    wanted = {
        (seed, experts, *choices[experts].recipe, arm, images, choices[experts].guidance(arm, scaled))
        for experts, arms in ((1, ["monolith"]), *((k, [*budget_tuning.TUNED_ARMS, "oracle", "full"]) for k in (4, 8)))
        for arm, (seed, images) in product(arms, places)
        for scaled in ([budget_tuning.TUNED_BUDGET] if arm == "full" else [budget_tuning.TUNED_BUDGET, images])
        if arm != "full" or images in (61440, 245760)
    }
    assert set(drawn) == wanted and set(drawn.values()) == {1}


def test_all_arms_cost_the_same_at_every_budget():
    costs, bought = {}, {}
    for name in (*budget_curve.CURVE_SWEEPS, "budget_scales"):
        for experiment in planned_sweep(name).experiments.values():
            trained, experts = experiment.experts.training, experiment.cluster.experts
            if experts == 1:
                costs.setdefault(name, set()).add((*trained.snapshots, trained.images))
                continue
            routed = resolve_training(experiment, ROUTER).settings
            numbers = [(routed.images, trained.images), *zip(routed.snapshots, trained.snapshots, strict=True)]
            assert {router / images for router, images in numbers} == {0.25}
            assert all(images % (trained.batch * experts) == 0 for _, images in numbers)
            assert resolve_training(experiment, expert_key(0)).settings.images * experts == trained.images
            known = experts, trained.images
            if known not in bought:
                bought[known] = flops_budget.training_of(experiment, MONOLITH).settings
            costs.setdefault(name, set()).add((*bought[known].snapshots, bought[known].images))
    images = sorted(budget_rows.BUDGETS)
    four, five = (*images[:4], images[3]), (*images, images[4])
    wanted = {"budget": {four}, "budget_longer": {(526848, 526848), five}, "budget_scales": {four, five}}
    assert costs == wanted, "the monolith of every K is the same, and so is the one that is trained by itself"


def test_the_average_forgets_by_a_tenth_of_the_images_seen_at_every_budget():
    total = load_experiment("budget").experts.training
    for batch, own in product((8, 64), BUDGETS):
        part, images = scale_training(total, Fraction(batch, total.batch)), own // total.batch * batch
        assert ema.update_weight(images, part) == pytest.approx(1 - 0.5 ** (batch / (0.1 * images)), rel=1e-12)
