"""Rows of the budget curve: they add up, the tuning is held to, all arms of a budget cost the same."""

from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
import yaml

from hpcddm.config.experiment import Experiment
from hpcddm.errors import UserError
from hpcddm.evaluation.metrics.fd import frechet_distance
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.files import atomic
from hpcddm.launch.sweep_runs import identity_hashes, sweep_runs_of
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.loading.load_sweep import read_sweep
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_relative_paths
from hpcddm.runs.unit_keys import MONOLITH, REPORT, ROUTER, expert_key
from hpcddm.runs.unit_training import resolve_training, scale_training
from hpcddm.stages.evaluation.draw import arm_names
from hpcddm.training import ema, flops_budget
from tests.benchmarks import budget, budget_curve, budget_rows, budget_tuning
from tests.benchmarks.planted import BUDGETS, planted, row
from tests.helpers import changed, write_experiment, write_source

planned_sweep = cache(read_sweep)


def test_rows_of_several_machines_add_up_and_known_ones_stay(tmp_path):
    file = tmp_path / "results" / "budget.csv"
    numbered = [own | {"fd": float(own["fd"])} for own in planted(0.0, -0.1, seeds=1)]
    assert budget_rows.add(numbered[4:], file) == [] and budget_rows.add(numbered[:4], file) == []
    whole = file.read_bytes()
    remarks = budget_rows.add([numbered[0] | {"fd": 99.0, "instructions": "AVX2"}], file)
    assert file.read_bytes() == whole and "FD 20.000 there (1), 99.000 now (AVX2)" in remarks[0]
    read = [(int(own["experts"]), int(own["budget"])) for own in budget_curve.read(file).values()]
    assert read == sorted(read) and len(read) == len(numbered)
    file.write_bytes(whole + whole.splitlines()[-1])
    assert len(budget_curve.read(file)) == len(numbered), "what a merge left twice counts once"
    for torn in (whole[:-40], whole[:-12], b"<<<<<<< ours\n" + whole):
        file.write_bytes(torn)
        with pytest.raises(UserError, match=r"budget.csv, line \d+: columns are missing"):
            budget_curve.read(file)


def tuned(fds, sweep="budget_tuning", parts=(1,)):
    """Rows of the tuning of K=4: FD by rate, arm and guidance scale."""
    own = {"sweep": sweep, "experts": "4", "batch": "16"}
    return [
        row(0, 122880, arm, fd, [fd * part for part in parts]) | own | {"learning_rate": rate, "guidance": scale}
        for (rate, arm, scale), fd in fds.items()
    ]


GRID = {("0.001", "top-1", "1.0"): 10, ("0.001", "top-1", "2.0"): 9, ("0.001", "top-2", "1.0"): 20}
GRID |= {("0.001", "top-2", "2.0"): 25, ("0.002", "top-1", "1.0"): 8, ("0.002", "top-1", "2.0"): 30}
GRID |= {("0.002", "top-2", "1.0"): 40, ("0.002", "top-2", "2.0"): 50}


def test_the_tuning_chooses_a_training_for_all_arms_and_guidance_for_each(capsys):
    wider = {("0.001", "top-1", "3.0"): 7, ("0.001", "top-2", "3.0"): 30, ("0.002", "top-2", "3.0"): 1}
    budget_tuning.choose([*tuned(GRID), *tuned(wider, "budget_guidance")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "K=4 rate 0.001, batch 16: FD 13.42 (geometric mean)", "wider scales do not choose the training"
    assert lines[2:] == [
        "K=4 top-1, 122,880 images: guidance 3 (1: 10.00, 2: 9.00, 3: 7.00)",
        "K=4 top-2, 122,880 images: guidance 1 (1: 20.00, 2: 25.00, 3: 30.00)",
    ]
    longer = tuned({("0.001", "top-1", "1.0"): 5, ("0.001", "top-1", "2.0"): 6}, "budget_scales")
    choice = budget_tuning.chosen([*tuned(GRID), *(own | {"budget": "245760"} for own in longer)])[4]
    assert [choice.guidance(arm, 122880) for arm in ("oracle", "full")] == [2.0, 1.0]
    assert [choice.guidance("top-1", images) for images in (30720, 245760, 491520)] == [2.0, 1.0, 1.0], "the nearest"


def test_a_row_that_is_there_twice_and_another_recipe_than_the_chosen_one_are_refused():
    rows, known = tuned(GRID), budget_curve.read(budget.ROWS).values()
    with pytest.raises(UserError, match="two rows of top-1 with rate 0.001, batch 16 and guidance 1; keep"):
        budget_tuning.chosen([*rows, rows[0]])
    with pytest.raises(UserError, match="no row of the tuning for K=8"):
        budget_tuning.choice_for(budget_tuning.chosen(rows), 8)
    planned = {own.cluster.experts: own for own in planned_sweep("budget").experiments.values()}
    for experts, override in (
        (4, {"evaluate__guidance": 9.0}),
        (4, {"experts__training__batch": 128}),
        (8, {"experts__overrides": [{"clusters": [7], "learning_rate": 0.004}]}),
    ):
        budget.check_recipe(planned[experts], known)
        other = Experiment.model_validate(changed(planned[experts].model_dump(mode="json"), **override))
        with pytest.raises(UserError, match=r"K=.* (tuning chose|several learning rates)"):
            budget.check_recipe(other, known)


def test_rows_of_another_recipe_are_no_part_of_the_curve():
    chosen = {"learning_rate": "0.001", "batch": "16"}
    scales = ("2.0", "1.0", "3.0")
    curve = [row(0, 30720, "top-1", 5, [5]) | chosen | {"guidance": scale} for scale in scales]
    own_scale = [{**tuned({("0.001", "top-1", "1.0"): 3}, "budget_scales")[0], "budget": "30720"}]
    rows = [*tuned(GRID), *own_scale, *curve, curve[0] | {"learning_rate": "0.002"}]
    assert budget_tuning.of_choice(rows) == curve[1:2] and budget_tuning.of_choice(rows, one_scale=True) == curve[:1]
    with pytest.raises(UserError, match=r"K=4 top-1, 30720 images, seed 0: the tuning chose .* \(0.001, 16, 1.0\)"):
        budget_tuning.of_choice([own for own in rows if own is not curve[1]])


def test_tenths_that_are_left_out_hold_as_many_of_each_class():
    samples, real = np.random.default_rng(0).normal(size=(2, 200, 3))
    samples[np.arange(200) // 4 % 10 == 3] += 100
    parts = budget_rows.fd_without(samples, real, classes=4)
    assert min(range(10), key=parts.__getitem__) == 3 and len(parts) == 10
    own = np.arange(200) // 4 % 10 != 3
    assert parts[3] == frechet_distance(*(FeatureStatistics.from_features(values[own]) for values in (samples, real)))


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


def test_a_run_has_the_identity_by_which_the_sweep_plans_it(tmp_path):
    write_source(tmp_path / "images")
    write_experiment(tmp_path)
    values = {"name": "trial", "experiment": "tiny.yaml", "grid": {"evaluate.guidance": [1.0, 2.0]}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(values))
    planned = sweep_runs_of(read_sweep(str(tmp_path / "sweep.yaml")), RunDir(tmp_path / "elsewhere" / "sweeps"))
    for one in planned:
        atomic.write_json(one.run.experiment, with_relative_paths(one.experiment, one.run).model_dump(mode="json"))
        assert identity_hashes(plan_units(stored_experiment(one.run)))[REPORT] == one.identities[REPORT]
    assert len({one.identities[REPORT] for one in planned}) == 2
