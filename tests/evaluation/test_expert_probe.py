"""The rule by which an expert of another site is accepted, part by part."""

import json
import math

import pytest

from hpcddm.config.experiment import ProbeRule
from hpcddm.evaluation.expert_probe import ProbeLosses, faults

LEVELS = [0.1, 0.5]
CONSTANT = [[2.0, 4.0], [1.0, 2.0], [2.0, 2.0]]
GOOD = [[1.6, 0.8], [0.7, 0.8], [0.9, 1.0]]
"""Losses of an expert of cluster 0, of geometric mean shares 0.4, 0.53 and 0.47."""


def probe(losses, constant=CONSTANT):
    return ProbeLosses(LEVELS, losses, constant)


def with_row(cluster, row):
    return probe([row if k == cluster else own for k, own in enumerate(GOOD)])


def test_an_expert_passes_whose_share_is_least_on_its_own_cluster_though_its_loss_is_not():
    assert faults(probe(GOOD), 0, ProbeRule()) == []
    assert faults(probe(GOOD), 1, ProbeRule(max_of_others=2)) == [], "a rule may allow more"


def test_it_has_to_beat_the_constant_predictor_by_the_factor_at_every_level():
    own = probe([[0.2, 3.6], [1.0, 2.0], [2.0, 2.0]])
    assert faults(own, 0, ProbeRule(max_share=0.91)) == []
    (line,) = faults(own, 0, ProbeRule())
    assert "t = 0.5" in line and "not below 0.9" in line
    assert len(faults(probe(CONSTANT), 0, ProbeRule())) == 2
    assert faults(probe(CONSTANT), 0, ProbeRule(max_share=1.01)) == []


def test_without_its_condition_it_has_to_beat_the_constant_predictor_too():
    def sent(*unconditional):
        return ProbeLosses(LEVELS, GOOD, CONSTANT, list(unconditional))

    assert faults(sent(1.7, 3.5), 0, ProbeRule()) == []
    (line,) = faults(sent(1.7, 3.7), 0, ProbeRule())
    assert line.startswith("at t = 0.5 its loss without its condition is 0.925 x")
    for wild in (math.nan, math.inf, None):
        stored = ProbeLosses(**json.loads(json.dumps(sent(1.7, wild).as_json(), allow_nan=False)))
        assert stored.unconditional == [1.7, None]
        assert faults(sent(1.7, wild), 0, ProbeRule()) == faults(stored, 0, ProbeRule())
        assert faults(stored, 0, ProbeRule()) == ["its loss without its condition is not finite"]


@pytest.mark.parametrize("other", [1, 2])
@pytest.mark.parametrize("level", [0, 1])
def test_in_the_geometric_mean_it_may_be_a_twentieth_harder_than_another_cluster_and_no_more(other, level):
    def sent(mean):
        shares = [0.1, mean**2 / 0.1][:: 1 - 2 * level]
        return with_row(other, [share * loss for share, loss in zip(shares, CONSTANT[other], strict=True)])

    assert faults(sent(0.382), 0, ProbeRule()) == []
    (line,) = faults(sent(0.38), 0, ProbeRule())
    assert "0.4 on its own cluster 0" in line and f"1.05 x 0.38 on cluster {other}" in line


@pytest.mark.parametrize("wild", [math.nan, math.inf, -math.inf, None])
@pytest.mark.parametrize("cluster", [0, 2])
def test_a_loss_that_is_not_finite_is_a_fault_on_any_cluster_and_can_be_stored(cluster, wild):
    measured = with_row(cluster, [0.9, wild])
    stored = ProbeLosses(**json.loads(json.dumps(measured.as_json(), allow_nan=False)))
    assert stored.losses[cluster] == [0.9, None]
    found = [faults(one, 0, ProbeRule()) for one in (measured, stored)]
    assert found == [[f"its loss on cluster {cluster} is not finite"]] * 2


@pytest.mark.parametrize("losses, constant", [([], []), ([0.1, 0.0], [0.5, 0.0])])
def test_clusters_without_images_or_without_anything_to_learn_are_passed_over(losses, constant):
    without = probe([GOOD[0], losses, [1.4, 1.4]], [CONSTANT[0], constant, CONSTANT[2]])
    assert faults(without, 0, ProbeRule()) == faults(without, 1, ProbeRule()) == []
    assert len(faults(without, 2, ProbeRule())) == 1
