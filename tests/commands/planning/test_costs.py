"""Operations that are counted beforehand, against operations that are counted while it happens."""

from collections import Counter
from itertools import product

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hpcddm.commands.planning.costs import UnitCosts
from hpcddm.config import variants
from hpcddm.models import build_denoiser, build_router
from hpcddm.pipeline.unit_graph import STAGES, plan_units
from hpcddm.runs.unit_keys import CAPTIONS, MONOLITH, ROUTER, expert_key
from hpcddm.sampling import nfe
from hpcddm.sampling.conversions.base import Conversion
from hpcddm.sampling.denoiser_velocity import DenoiserVelocity
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.sampler import sample
from hpcddm.stages.evaluation.draw import arm_names
from hpcddm.stages.report.report_job import GALLERY_IMAGES
from hpcddm.stages.workload import (
    DECODE_LATENTS,
    ENCODE_LATENTS,
    TEXT_ENCODER,
    Work,
)
from hpcddm.stages.workload import ROUTER as ROUTER_NETWORK
from hpcddm.training import flops_budget
from tests.diffusion.spaces.examples import pixels
from tests.helpers import CLASSES, JOINED, LATENT_SPACE, SIDE, tiny

COUNTS = {"train": 96, "heldout": 40}


def costs(tmp_path, **changes):
    return UnitCosts(tiny(tmp_path, cluster__experts=4, **changes), COUNTS)


@pytest.mark.parametrize("cached", [True, False])
def test_captions_are_encoded_once_or_for_every_image_that_is_trained_on(tmp_path, cached):
    told = {"name": "text", "encoder": {"name": "words", "width": 16}, "tokens": 5, "cached": cached}
    made = costs(tmp_path, data__condition=told, distill={"teacher": "router"})
    units = [unit.key for unit in plan_units(made.experiment)]
    work = {key: [one.images for one in made.work(key) if one.network == TEXT_ENCODER] for key in units}
    encoding = {key: sum(images) for key, images in work.items() if images}
    trained = made.experiment.experts.training.images
    if cached:
        ranges = [key for key in units if key.startswith("encode_captions/") and key != CAPTIONS]
        assert encoding == dict.fromkeys(ranges, -(-sum(COUNTS.values()) // len(ranges)))
        kept = sum(STAGES["encode_captions"].disk(made.experiment, key, COUNTS, 1).kept for key in ranges)
        assert kept >= sum(COUNTS.values()) * 5 * 16 * 2 and made.flops(made.work(ranges[0])[0]) == 0
    else:
        assert {key.split("/")[0] for key in encoding} == {"train", "router", "distill"}
        assert encoding["train/expert-00"] == trained // 4 and encoding["router/all"] > 0


def sampled_flops(settings, arm, images):
    """The operations of really drawing some images with networks that weigh nothing twice."""
    torch.manual_seed(0)
    evaluate = settings.evaluate
    conversion = variants.create(Conversion, evaluate.conversion)

    def denoiser(expert=None):
        config = settings.expert_config(expert)
        network = build_denoiser.build(settings, config).eval()
        return DenoiserVelocity(network, build_denoiser.objective_of(config), conversion)

    experts = [denoiser(expert) for expert in range(4)]
    ensemble = Ensemble(experts, build_router.build(settings).eval(), denoiser(), denoiser(), CLASSES)
    classes, clusters = torch.arange(images) % CLASSES, torch.arange(images) % 4
    with FlopCounterMode(display=False) as counter:
        sample(ensemble.field(arm, evaluate, clusters), 0, range(images), classes, pixels(1, SIDE, SIDE), evaluate)
    return counter.get_total_flops()


SAMPLERS = {
    "as it stands": {},
    "guided": {"evaluate__guidance": 2.0},
    "guided, one posterior": {"evaluate__guidance": 2.0, "evaluate__posteriors": "shared"},
    "guided for a while": {"evaluate__guidance": 2.0, "evaluate__guidance_interval": [0.3, 0.8]},
    "heun": {"evaluate__solver": {"name": "heun"}, "evaluate__steps": 3},
    "routed every other step": {"evaluate__route_every_steps": 2, "evaluate__steps": 5},
}


CASES = [(arm, "as it stands") for arm in ("student", "top-1", "full", "oracle", "sample-2")]
CASES += product(("monolith", "top-2", "per-trajectory", "full-until-0.5-then-top-1"), SAMPLERS)
"""Every arm, and every way of sampling with one arm of each kind."""


@pytest.mark.parametrize("arm, sampler", CASES)
def test_sampling_costs_what_is_counted_while_sampling(tmp_path, arm, sampler):
    own = costs(tmp_path, **SAMPLERS[sampler])
    planned = sum(own.flops(work) for work in own.workload.sampling([arm], 6, 6, nfe.of_arm))
    assert planned == sampled_flops(own.experiment, arm, 6) > 0


def test_a_threshold_is_counted_with_the_router_that_spreads_most(tmp_path):
    own = costs(tmp_path, evaluate__steps=3)
    arms = {"threshold-0.2": 4, "threshold-0": 8, "top-2": 2}
    assert {arm: nfe.of_arm(arm, own.experiment.evaluate, 8).experts / 3 for arm in arms} == arms


def test_a_report_is_planned_as_it_is_made(tmp_path):
    own = costs(tmp_path, evaluate__guidance=2.0)
    seen = Counter()
    for work in own.work("report/all"):
        seen[work.network] += work.images
    steps = own.experiment.evaluate.steps
    # Gallery, then n and 2 n steps with every expert asked once more in each of the n; guided looks are of two halves.
    monolith, top_1, alone = 2 * steps * 4 + steps, 2 * steps * 4 + 4 * steps, 4 * 2 * steps
    assert seen[MONOLITH] == GALLERY_IMAGES * (monolith + top_1 + alone)
    assert seen[ROUTER_NETWORK] == GALLERY_IMAGES * (2 * steps * 4 + steps)


def test_a_refit_costs_what_its_manifest_will_say(tmp_path):
    own = costs(tmp_path, router__refit={"weights": "other.safetensors"})
    (trained,) = [work for work in own.work(ROUTER) if work.is_training]
    whole = flops_budget.router_fit_flops(costs(tmp_path).experiment)
    assert own.flops(trained) == flops_budget.router_fit_flops(own.experiment) < whole / 2


def test_experts_of_another_network_are_counted_apart(tmp_path):
    small = {"name": "dit", "width": 8, "depth": 1, "heads": 1, "patch": 4}
    own = costs(tmp_path, experts__overrides=[{"clusters": [1, 2], "model": small}])
    networks = [own.work(expert_key(expert))[0].network for expert in range(4)]
    assert networks == [MONOLITH, expert_key(1), expert_key(1), MONOLITH]
    whole = sum(own.flops(work) for work in own.workload.sampling(["full"], 6, 6, nfe.of_arm))
    assert whole == sampled_flops(own.experiment, "full", 6)


def test_an_expert_that_joins_costs_its_own_images_and_is_on_no_other_bill(tmp_path):
    small = {"name": "dit", "width": 8, "depth": 1, "heads": 1, "patch": 4}
    before = costs(tmp_path)
    own = costs(tmp_path, experts__extra=[JOINED, JOINED | {"name": "bags", "model": small}])
    assert own.work("train/hats") == [Work(MONOLITH, True, 32, 8)]
    assert own.work("train/bags") == [Work("train/bags", True, 32, 8)] and not own.work("expert_lists/hats")
    assert 0 < own.flops(*own.work("train/bags")) < own.flops(*own.work("train/hats"))
    for unit in plan_units(before.experiment):
        assert own.work(unit.key) == before.work(unit.key)


def test_what_is_drawn_in_latents_is_decoded_and_samples_for_a_router_are_encoded(tmp_path):
    drawn = {"images": 5, "steps": 2, "guidance": 1.0}
    own = costs(tmp_path, data__space=LATENT_SPACE, data__channels=3, router__samples=drawn)
    kinds = {ENCODE_LATENTS, DECODE_LATENTS}
    keys = [unit.key for unit in plan_units(own.experiment)]
    counted = {key: {work.network: work.images for work in own.work(key) if work.network in kinds} for key in keys}
    assert counted[ROUTER] == {DECODE_LATENTS: 4 * 5, ENCODE_LATENTS: own.experiment.router.training.images}
    evaluated = sum(found.get(DECODE_LATENTS, 0) for key, found in counted.items() if key.startswith("draw/"))
    assert evaluated == own.experiment.evaluate.images * len(arm_names(own.experiment))
    # Two steps have two estimates.
    assert counted["report/all"] == {DECODE_LATENTS: (len(arm_names(own.experiment)) + 4 + 2) * GALLERY_IMAGES}
    assert own.flops(Work(ENCODE_LATENTS, False, 1, 1)) != own.flops(Work(DECODE_LATENTS, False, 1, 1)) > 0
