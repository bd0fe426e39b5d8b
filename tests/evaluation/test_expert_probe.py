"""The rule by which an expert of another site is accepted, part by part."""

import json
import math

import pytest

from hpcddm.errors.printing import printable
from hpcddm.evaluation.expert_probe import ProbeLosses, faults

LEVELS = [0.1, 0.5]
CONSTANT = [[1.0, 2.0], [1.0, 2.0], [3.0, 3.0]]
GOOD = [[0.5, 0.6], [0.7, 0.8], [0.9, 0.7]]
"""Losses of an expert of cluster 0."""


def probe(losses, constant=CONSTANT):
    return ProbeLosses(LEVELS, losses, constant)


def changed(cluster, level, loss):
    rows = [list(row) for row in GOOD]
    rows[cluster][level] = loss
    return probe(rows)


def test_an_expert_that_is_best_on_its_own_cluster_passes():
    assert faults(probe(GOOD), 0, 0.9) == []


def test_it_has_to_beat_the_constant_predictor_by_the_factor_at_every_level():
    own = probe([[0.5, 1.8], [0.7, 1.9], [0.9, 1.9]])
    assert faults(own, 0, 0.91) == []
    (line,) = faults(own, 0, 0.9)
    assert "t = 0.5" in line and "1.8" in line and "0.9 x 2 " in line


def test_it_has_to_be_worse_on_every_other_cluster_at_every_level():
    (line,) = faults(changed(2, 0, 0.5), 0, 0.9)
    assert "t = 0.1" in line and "0.5 on cluster 2" in line and "cluster 1" not in line
    # As the expert of another cluster it is at fault at both levels, there for both other clusters.
    assert [line.count("on cluster") for line in faults(probe(GOOD), 1, 0.9)] == [2, 3]


@pytest.mark.parametrize("wild", [math.nan, math.inf, -math.inf, None])
@pytest.mark.parametrize("cluster", [0, 2])
def test_a_loss_that_is_not_finite_is_a_fault_on_any_cluster_and_can_be_stored(cluster, wild):
    measured = changed(cluster, 1, wild)
    stored = ProbeLosses(**json.loads(json.dumps(measured.as_json(), allow_nan=False)))
    assert stored.losses[cluster][1] is None and stored.losses[cluster][0] == GOOD[cluster][0]
    for losses in (measured, stored):
        (line,) = faults(losses, 0, 0.9)
        assert line.endswith(f"is not finite on clusters {cluster}") and "t = 0.5" in line


def test_clusters_without_images_are_passed_over():
    without = probe([GOOD[0], [], GOOD[2]], [CONSTANT[0], [], CONSTANT[2]])
    assert faults(without, 0, 0.9) == faults(without, 1, 0.9) == []
    assert len(faults(without, 2, 0.9)) == 2


def test_each_fault_is_one_line_that_a_terminal_shows_as_it_is():
    lines = faults(probe([[math.nan, 9.0], [0.1, 0.1], [0.2, 0.2]]), 0, 0.9)
    assert len(lines) == 3 and all(line == printable(line) for line in lines)
