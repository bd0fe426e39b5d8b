"""An expert over two nodes, disturbed in every way that clusters have: the weights stay the same to the last bit."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from hpcddm.jobs.attempt_records import read_records
from tests.late_names.mounts import LATE
from tests.real.storm import (
    BY_NODES,
    GENTLE,
    KEY,
    KINDS,
    LAUNCH,
    PACED,
    PHASES,
    STOPS,
    Disturbance,
    Storm,
    schedule,
    schedule_of_nodes,
    weights,
)

pytestmark = pytest.mark.slurm
LONG_ROUNDS = 4
# At first the neighbour has nodes of its own, so that both nodes of the disturbed one can be lost.
SHORT = [("slurmd killed", "step"), ("usr2", "imports"), ("sigkill", "save"), ("preemption", "step")]
EVERY_KIND = [*SHORT[:1], ("time limit", "step"), *SHORT[1:3], ("term", "rendezvous")]
EVERY_KIND += [("slurmctld restarted", "step"), ("scancel", "save"), *SHORT[3:]]


# Three refused launches in a row: the unit is not to blame for one of them.
BY_NODES_SHORT = [("launch refused", LAUNCH), ("credential expired", LAUNCH), ("launch refused", LAUNCH)]
BY_NODES_SHORT += [("usr2", "step"), ("one slurmd killed", "imports"), ("sigkill", "step")]


def _all(kinds):
    return [Disturbance(kind, phase, 0.0) for kind, phase in kinds]


def storm_of(folder, home, disturbances, images, finished=None):
    folder.mkdir(exist_ok=True)
    storm = Storm(folder, home, seed=0, images=images, settings=PACED, finished=finished)
    storm.keys += f"\nsetup: ['export HPCDDM_TEST_PACE={storm.pace}']"
    storm.pace.touch()
    storm.submit(folder / "calm", "local")
    storm.submit(storm.run, "slurm")
    storm.rage(disturbances)
    return storm


def require_nothing_lost(storm):
    """Must-haves of every storm: same bits, nothing repeated after a signal, the neighbour left alone."""
    assert weights(storm.run) == weights(storm.folder / "calm")
    assert {one.repeated for one in storm.log if one.kind in GENTLE} == {0}, storm.log
    assert storm.neighbours_attempts == int(storm.has_neighbour)


@pytest.fixture(scope="module")
def storm(home, finished, tmp_path_factory):
    """A dead node, a signal, a dead rank and a preemption; `make test-long` has every kind."""
    return storm_of(tmp_path_factory.mktemp("storm"), home, _all(SHORT), images=32_000, finished=finished)


def test_the_weights_are_the_same_to_the_last_bit_nothing_is_lost_on_a_signal_and_the_neighbour_never_stopped(storm):
    assert [one.kind for one in storm.log] == [kind for kind, _ in SHORT]
    assert {one.hit for one in storm.log} >= {"imports", "step"}
    require_nothing_lost(storm)


@pytest.mark.long
def test_a_storm_of_every_kind(home, tmp_path):
    storm = storm_of(tmp_path, home, _all(EVERY_KIND), images=480_000)
    assert {one.kind for one in storm.log} == set(KINDS)
    require_nothing_lost(storm)


def test_an_attempt_that_outlives_its_nodes_leaves_when_the_next_one_begins(storm):
    one = storm.log[0]
    old = read_records(storm.run / "logs" / KEY)[one.attempt - 1]
    assert re.search("began: [12]$", one.note) and (old.outcome, old.decision) == ("superseded", "superseded")
    # Its successor went on until somebody else disturbed it.
    assert storm.log[1].attempt == one.attempt + 1


@pytest.fixture
def late_testbed(home):
    """A testbed in which every node, and the login side, is an NFS client of its own that sees names late."""
    # In a short path: a socket's name has an end.
    folder = Path(tempfile.mkdtemp(prefix="testbed-late-", dir="/tmp"))
    environment = os.environ | {"HPCDDM_TESTBED_LATE_NAMES": str(LATE)}
    try:
        subprocess.run(["bash", "slurm/testbed/up.sh", str(folder)], check=True, env=environment, timeout=180)
        yield folder
    finally:
        subprocess.run(["bash", "slurm/testbed/down.sh", str(folder)], check=True, timeout=180)


@pytest.mark.long
def test_a_storm_on_nodes_that_see_each_others_names_late(late_testbed):
    conf = f"{late_testbed}/home/slurm.conf"
    require_nothing_lost(storm_of(late_testbed / "shared" / "storm", conf, _all(EVERY_KIND), images=480_000))


def storm_of_nodes(folder, home, disturbances, images, finished=None):
    """A storm of which half is by nodes; no attempt that they ended may count against the unit."""
    storm = Storm(folder, home, seed=0, images=images, settings=PACED, finished=finished)
    storm.settle_for_nodes()
    storm.pace.touch()
    storm.submit(folder / "calm", "local")
    if disturbances[0].phase == LAUNCH:
        storm.gate.touch()
    storm.submit(storm.run, "slurm")
    storm.rage(disturbances)
    require_nothing_lost(storm)
    refused = [read_records(storm.run / "logs" / KEY)[one.attempt - 1] for one in storm.log if one.phase == LAUNCH]
    assert {record.verdict["by_slurm"] for record in refused} == {True}
    assert [record.faulty_nodes for record in refused] == [
        [one.note.split()[1]] for one in storm.log if one.phase == LAUNCH
    ]
    return storm


@pytest.mark.long
def test_nodes_that_refuse_launches_and_die_are_avoided_and_the_unit_does_not_give_up(home, finished, tmp_path):
    storm = storm_of_nodes(tmp_path, home, _all(BY_NODES_SHORT), images=32_000, finished=finished)
    tried = read_records(storm.run / "logs" / KEY)
    first = storm.log[0].attempt
    assert tried[first - 1].faulty_nodes[0] not in storm.nodes(tried[first]), "the next attempt avoids it"


@pytest.mark.long
def test_a_storm_of_sixty_disturbances_half_of_them_by_nodes(home, tmp_path):
    storm = storm_of_nodes(tmp_path, home, schedule_of_nodes(0, 60), images=240_000)
    assert sum(one.kind in BY_NODES for one in storm.log) == 30


@pytest.mark.long
@pytest.mark.root
def test_a_storm_of_forty_disturbances_at_random_moments_with_full_disks_among_them(home, tmp_path):
    storm = storm_of(tmp_path, home, schedule(0, [*KINDS, *STOPS] * LONG_ROUNDS), images=240_000)
    assert len(storm.log) == 40 and {one.hit for one in storm.log} >= set(PHASES)
    require_nothing_lost(storm)
