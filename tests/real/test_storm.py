"""An expert over two nodes, disturbed in every way that clusters have: the weights stay the same to the last bit."""

import pytest

from hpcddm.runtime.records import records
from tests.real.storm import GENTLE, KEY, KINDS, NEIGHBOUR, PHASES, Disturbance, Storm, schedule, weights

pytestmark = pytest.mark.slurm
LONG_ROUNDS = 3


def storm_of(folder, home, disturbances, images):
    storm = Storm(folder, home, seed=0, images=images)
    storm.submit(folder / "calm", "local")
    storm.submit(storm.run, "slurm")
    storm.rage(disturbances)
    return storm


def require_nothing_lost(storm):
    """Must-haves of every storm: same bits, nothing repeated after a signal, the neighbour left alone."""
    assert weights(storm.run) == weights(storm.folder / "calm")
    assert {one.repeated for one in storm.log if one.kind in GENTLE} == {0}, storm.log
    assert len(records(storm.run / "logs" / NEIGHBOUR)) == 1


@pytest.fixture(scope="module")
def storm(home, tmp_path_factory):
    """One disturbance of every kind, at every phase."""
    # The time limit first: it comes in whole minutes, counted from the start of an attempt.
    kinds = [("time limit", "step"), ("usr2", "imports"), ("sigkill", "save"), ("term", "rendezvous")]
    kinds += [("slurmctld restarted", "step"), ("scancel", "save"), ("preemption", "step"), ("slurmd killed", "step")]
    disturbances = [Disturbance(kind, phase, 0.0) for kind, phase in kinds]
    return storm_of(tmp_path_factory.mktemp("storm"), home, disturbances, images=512_000)


def test_the_weights_are_the_same_to_the_last_bit_nothing_is_lost_on_a_signal_and_the_neighbour_never_stopped(storm):
    assert {one.kind for one in storm.log} == set(KINDS) and {one.hit for one in storm.log} >= {"imports", "step"}
    require_nothing_lost(storm)


def test_the_old_attempt_outlived_its_node_and_left_when_the_new_one_began(storm):
    (one,) = (one for one in storm.log if one.kind == "slurmd killed")
    old = records(storm.run / "logs" / KEY)[one.attempt - 1]
    assert old.outcome in ("superseded", "failed") and old.decision in ("superseded", None)


@pytest.mark.long
def test_a_storm_of_many_disturbances_at_random_moments(home, tmp_path):
    storm = storm_of(tmp_path, home, schedule(0, list(KINDS) * LONG_ROUNDS), images=1_600_000)
    assert len(storm.log) >= 20 and {one.hit for one in storm.log} >= set(PHASES)
    require_nothing_lost(storm)
