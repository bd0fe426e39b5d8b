"""Wherever the weights are, the images are the same: real networks, whose weights come from safetensors."""

from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file

from hpcddm.config import variants
from hpcddm.config.sampling import PlacementSettings
from hpcddm.errors import ConfigError
from hpcddm.models import build_denoiser
from hpcddm.sampling.denoiser_velocity import DenoiserVelocity
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.placements.base import Placement
from hpcddm.sampling.placements.lru import GIB, WeightCache
from hpcddm.sampling.sampler import sample
from hpcddm.stages.training import router_job
from tests.diffusion.spaces.examples import pixels
from tests.helpers import CLASSES, SIDE, tiny
from tests.sampling.fields import conversion, evaluation
from tests.sampling.mixtures import objective

ROOM, EXPERTS, CPU = "sampling/placements", 4, torch.device("cpu")
WORDS = {"resident": {}, "spread": {}, "lru": {"max_gib": 1.0}}
STRATEGIES = ["full", "top-1", "top-2", "sample-1", "per-trajectory", "expert-2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The weights of four experts and a router, none of which is trivial."""
    path = tmp_path_factory.mktemp("networks")
    experiment = tiny(path, cluster__experts=EXPERTS)
    torch.manual_seed(0)
    for index in range(EXPERTS):
        save_file(
            _stirred(build_denoiser.build(experiment, experiment.expert_config(index))), path / f"{index}.safetensors"
        )
    save_file(_stirred(router_job.build(experiment)), path / "router.safetensors")
    return path


def _stirred(network):
    return {name: one + 0.1 * torch.randn_like(one) for name, one in network.state_dict().items()}


def networks(folder):
    experiment = tiny(folder, cluster__experts=EXPERTS)
    found = {}
    for index in range(EXPERTS):
        network = build_denoiser.build(experiment, experiment.expert_config(index)).eval()
        network.load_state_dict(load_file(folder / f"{index}.safetensors"))
        found[f"train/expert-{index:02d}"] = network.requires_grad_(False)
    router = router_job.build(experiment).eval()
    router.load_state_dict(load_file(folder / "router.safetensors"))
    return found, router


def place(name, found, **keys):
    return variants.create(Placement, PlacementSettings.model_validate({"name": name} | keys)).place(found, CPU)


def draw(placed, router, arm, guidance=2.0):
    experts = [DenoiserVelocity(one, objective("flow_matching"), conversion()) for one in placed.values()]
    evaluate = evaluation(steps=4, guidance=guidance)
    field = Ensemble(experts, router, None, None, CLASSES).field(arm, evaluate)
    return sample(field, 0, range(12), torch.arange(12) % CLASSES, pixels(1, SIDE, SIDE), evaluate)


def test_every_placement_is_covered():
    assert set(WORDS) == set(variants.list_variants(ROOM))


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("arm", STRATEGIES)
def test_where_weights_are_changes_no_bit(folder, name, arm):
    (found, router), (others, _) = networks(folder), networks(folder)
    images = draw(place("resident", found), router, arm)
    assert images.std() > 0.1
    assert torch.equal(draw(place(name, others, **WORDS[name]), router, arm), images)


@pytest.mark.parametrize("room_for", [1, 2, 3, 4])
@pytest.mark.parametrize("arm", STRATEGIES)
def test_a_bound_on_memory_is_kept_and_changes_no_bit(folder, monkeypatch, room_for, arm):
    (found, router), (others, _) = networks(folder), networks(folder)
    cache = WeightCache(others, room_for * size(others), CPU)
    held = []
    monkeypatch.setattr(WeightCache, "call", noting(held))
    images = draw({key: partial(cache.call, key) for key in others}, router, arm)
    assert torch.equal(images, draw(place("resident", found), router, arm))
    assert max(held) <= room_for * size(others)
    assert cache.loads == len(set(cache.copies)) or room_for < EXPERTS


def size(found):
    return max(sum(one.nbytes for one in [*net.parameters(), *net.buffers()]) for net in found.values())


def noting(held):
    before = WeightCache.call

    def call(self, key, *inputs):
        answer = before(self, key, *inputs)
        held.append(sum(one.nbytes for copy in self.copies.values() for one in copy.values()))
        return answer

    return call


def test_the_least_recently_used_one_goes(folder):
    found, _ = networks(folder)
    cache = WeightCache(found, 2 * size(found), CPU)
    first, second, third, _ = found
    inputs = torch.zeros(1, 1, SIDE, SIDE), torch.zeros(1), torch.zeros(1, dtype=torch.long)
    for key, loads, there in (
        (first, 1, [first]),
        (second, 2, [first, second]),
        (first, 2, [second, first]),
        (third, 3, [first, third]),
        (second, 4, [third, second]),
    ):
        cache.call(key, *inputs)
        assert (cache.loads, list(cache.copies)) == (loads, there)


def test_a_copy_is_no_view_of_the_weights_on_the_host(folder):
    found, _ = networks(folder)
    cache = WeightCache(found, size(found), CPU)
    key = next(iter(found))
    cache.call(key, torch.zeros(1, 1, SIDE, SIDE), torch.zeros(1), torch.zeros(1, dtype=torch.long))
    on_host = {one.data_ptr() for one in found[key].parameters()}
    assert not on_host & {one.data_ptr() for one in cache.copies[key].values()}


def test_an_expert_that_does_not_fit_is_named_with_what_it_needs(folder):
    found, _ = networks(folder)
    bound = 0.5 * size(found) / GIB
    with pytest.raises(ConfigError, match=r"evaluate.placement.gib: .* less than train/expert-00 alone.*at least"):
        place("lru", found, max_gib=bound)
