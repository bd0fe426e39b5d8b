"""Operations that are counted beforehand, against operations that are counted while it happens."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hpcddm.ensemble.members import Members, as_velocity
from hpcddm.ensemble.sampler import sample
from hpcddm.pipeline import EXTRACTOR, MONOLITH, ROUTER, expert_key, plan
from hpcddm.stages import route, train
from hpcddm.stages.costs import DENOISER, ENCODER, TAR, Costs, Work
from hpcddm.stages.costs import ROUTER as ROUTER_NETWORK
from tests.helpers import CLASSES, SIDE, tiny

COUNTS = {"train": 96, "heldout": 40}
STRATEGIES = ["top-1", "top-2", "full", "oracle"]


def costs(tmp_path, **changes):
    return Costs(tiny(tmp_path, cluster__experts=4, **changes), COUNTS)


def sampled_flops(settings, arm, images):
    """The operations of really drawing some images with networks that weigh nothing twice."""
    torch.manual_seed(0)
    nets = [train.build(settings).eval() for _ in range(5)]
    velocities = [as_velocity(net, settings.experts.objective) for net in nets]
    members = Members(velocities[:4], route.build(settings).eval(), velocities[4], CLASSES)
    classes, clusters = torch.arange(images) % CLASSES, torch.arange(images) % 4
    with FlopCounterMode(display=False) as counter:
        field = members.field(arm, settings.evaluate.guidance, clusters)
        sample(field, 0, range(images), classes, (1, SIDE, SIDE), settings.evaluate.steps)
    return counter.get_total_flops()


@pytest.mark.parametrize("guidance", [1.0, 2.0])
@pytest.mark.parametrize("arm", ["monolith", *STRATEGIES])
def test_sampling_costs_what_is_counted_while_sampling(tmp_path, arm, guidance):
    own = costs(tmp_path, evaluate__guidance=guidance)
    planned = sum(own.flops(work) for work in own._sampling([arm], 6, 6))
    assert planned == sampled_flops(own.settings, arm, 6) > 0


def test_every_unit_of_the_pipeline_has_its_work_but_clustering(tmp_path):
    own = costs(tmp_path)
    found = {unit.key: own.work(unit.key) for unit in plan(own.settings)}
    assert [key for key, work in found.items() if not work] == ["cluster/all"]
    networks = {network.network for work in found.values() for network in work}
    assert networks == {TAR, ENCODER, DENOISER, ROUTER_NETWORK, "extractor", "judge"}


def test_a_training_is_whole_batches_of_its_share(tmp_path):
    own = costs(tmp_path, router__training__images=65, critics__extractor__training__images=65)
    assert own.work(expert_key(1)) == [Work(DENOISER, True, 16, 4)]
    assert own.work(ROUTER)[0] == Work(ROUTER_NETWORK, True, 80, 16)
    assert own.work(EXTRACTOR)[0] == Work("extractor", True, 80, 16)
    assert own.work(MONOLITH)[0].images > 64


def test_the_units_of_the_evaluation_share_its_work(tmp_path):
    whole, parts = costs(tmp_path), costs(tmp_path, evaluate__units=3)

    def flops(own):
        keys = [unit.key for unit in plan(own.settings) if unit.stage == "evaluate"]
        return sum(own.flops(work) for key in keys for work in own.work(key))

    assert flops(whole) == flops(parts) > 0
