"""FLOPs of networks: every network is counted, and only once in a process."""

import pytest

from hpcddm.models.flops import training_flops
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from hpcddm.runs.unit_training import resolve_training
from hpcddm.training import flops_budget
from tests.helpers import tiny

OBJECTIVE = {"clusters": [0], "objective": {"name": "epsilon"}, "learning_rate": 0.5}


@pytest.fixture
def counts(monkeypatch):
    """FLOPs that were counted from now on, in their order."""
    found = []

    def training(*arguments):
        found.append(training_flops(*arguments))
        return found[-1]

    monkeypatch.setattr(flops_budget, "training_flops", training)
    return found


def flops(experiment):
    """FLOPs of a training image of two experts and the monolith."""
    keys = (expert_key(0), expert_key(1), MONOLITH)
    return [flops_budget.train_flops(experiment, resolve_training(experiment, key).denoiser) for key in keys]


def test_a_network_is_counted_once_whatever_it_learns_and_another_one_anew(tmp_path, counts):
    # A batch that no other test has, so that this process has not counted it yet.
    common = {"cluster__experts": 3, "experts__training__batch": 51, "experts__overrides": [OBJECTIVE]}
    experiment = tiny(tmp_path, **common)
    for _ in range(2):
        assert flops(experiment) == counts * 3
    wider = dict(experiment.experts.model) | {"name": experiment.experts.model.name}
    wider["width"] *= 2
    own = tiny(tmp_path, **common | {"experts__overrides": [OBJECTIVE, {"clusters": [1], "model": wider}]})
    first, second, dense = flops(own)
    assert first == dense == counts[0] and second > 2 * first and counts == [first, first, second]
