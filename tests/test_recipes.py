"""The papers' recipes: every number says where it comes from, numbers agree with each other, missing data are named."""

import math
import re

import pytest

from hpcddm.commands.expert_costs import shift_of_space
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.pipeline.unit_graph import plan_units
from tests import helpers
from tests.helpers import REPOSITORY
from tests.whole_runs import hpcddm

STRONG = ("imagenet_strong", "imagenet_strong_vavae")
RECIPES = ("imagenet_ddm", "laion_ddm_24b", "hddm_laion", *STRONG)
ORIGIN = re.compile(r"# .*\b(paper|derived|ours)\b")
EMA = 0.9999
each_recipe = pytest.mark.parametrize("name", RECIPES)


@each_recipe
def test_every_number_says_where_it_comes_from(name):
    settings = (REPOSITORY / "experiments" / f"{name}.yaml").read_text().partition("\nname:")[2].splitlines()[1:]
    for line, before in zip(settings, ["", *settings], strict=False):
        value, _, _ = line.partition("#")
        is_continued = value.strip().endswith(",")
        if re.search(r"\d", value) and not is_continued:
            assert ORIGIN.search(line) or (before.strip().startswith("#") and ORIGIN.search(before)), line


@each_recipe
def test_images_follow_from_steps_and_the_half_life_from_the_decay(name):
    training = load_experiment(name).experts.training
    steps = math.log(0.5) / math.log(EMA)
    assert training.ema_halflife_images == pytest.approx(steps * training.batch, rel=1e-3)


def test_numbers_of_steps_are_the_papers():
    imagenet, laion = (load_experiment(name).experts.training for name in RECIPES[:2])
    assert imagenet.images == 800_000 * 256 and laion.images == 1_000_000 * laion.batch
    assert load_experiment("hddm_laion").router.training.images == 25 * 11_000_000
    for name in STRONG:
        training = load_experiment(name).experts.training
        assert training.images == 100_000 * training.batch == pytest.approx(80 * 1_281_167, rel=1e-3)


@pytest.mark.parametrize("name, patch, fits", [(STRONG[0], 2, 1), (STRONG[1], 1, 2**0.5)])
def test_the_strong_recipes_have_the_block_and_the_training_of_their_paper(name, patch, fits):
    own = load_experiment(name)
    for model in (own.experts.model, own.router.model):
        assert (model.mlp, model.norm, model.positions, model.qk_norm) == ("swiglu", "rms", "rotary", True)
        assert model.patch == patch and own.data.x_shape.height // patch == 16
    objective, training = own.experts.objective, own.experts.training
    assert (objective.name, objective.times.name, objective.shift) == ("flow_matching", "logit_normal", 1)
    assert (training.batch, training.learning_rate, training.betas) == (1024, 2e-4, (0.9, 0.95))
    assert own.evaluate.labels == "balanced" and own.evaluate.guidance_interval == [0, 0.9]
    assert shift_of_space(own) == pytest.approx(fits)


@each_recipe
def test_its_units_are_eight_experts_in_latents(name):
    experiment = load_experiment(name)
    keys = [unit.key for unit in plan_units(experiment)]
    assert sum(key.startswith("train/expert-") for key in keys) == 8 and "latents/scale" in keys
    assert experiment.data.x_shape == ((32, 16, 16) if name.endswith("vavae") else (4, 32, 32))
    assert ("train/monolith" in keys) == name.startswith("imagenet")


@each_recipe
def test_submit_names_the_folder_that_is_missing(name, tmp_path):
    done = helpers.hpcddm("submit", name, "--site", "slurm", "--dry-run", "--run-dir", tmp_path / "run")
    assert done.exit_code == 1 and "is not a folder" in done.output and "/data/" in done.output, done.output
    assert done.output.count("\n") == 1


@pytest.mark.long
@each_recipe
def test_it_can_be_planned_without_data_and_weights(name):
    numbers = "samples=11000000,heldout=100000"
    adopts = "" if name.startswith("imagenet") else ",tars=1110"
    done = hpcddm("plan", name, "--site", "slurm", "--assume", numbers + adopts, "--flops-per-second", "1e14")
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("│ train "))
    assert re.search(r"\d\.\d\de\+\d\d", row) and "given" in row
