"""FLOPs of networks: every network is counted, and only once in a process."""

import pytest

from hpcddm.models.flops import training_flops
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


def test_a_network_is_counted_once_whatever_it_learns_and_another_one_anew(tmp_path, counts):
    # A batch that no other test has, so that this process has not counted it yet.
    common = {"cluster__experts": 3, "experts__training__batch": 51, "experts__overrides": [OBJECTIVE]}
    experiment = tiny(tmp_path, **common)
    for _ in range(2):
        found = flops_budget.flops_of_experts(experiment, (0, 1, None), flops_budget.train_flops)
        assert found == counts * 3
    wider = dict(experiment.experts.model) | {"name": experiment.experts.model.name}
    wider["width"] *= 2
    own = tiny(tmp_path, **common | {"experts__overrides": [OBJECTIVE, {"clusters": [1], "model": wider}]})
    first, second, dense = flops_budget.flops_of_experts(own, (0, 1, None), flops_budget.train_flops)
    assert first == dense == counts[0] and second > 2 * first and counts == [first, first, second]
