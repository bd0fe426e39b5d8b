"""Looks for what another node is about to make: each comes too early, and succeeds soon all the same."""

import threading
import time

import pytest

from hpcddm.jobs import input_gate
from hpcddm.jobs.attempt import ENDED
from hpcddm.jobs.attempt_records import read_records
from hpcddm.jobs.entry import _stopped_by_user
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.spec import Spec
from hpcddm.jobs.unit_inputs import InputsNotReady, gather_inputs
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import survey_units
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CATALOG
from tests.helpers import finish, tiny

OWNER = "slurm-x-0123456789ab-7_0"
SOON = 10.0
"""Seconds; names are late by 30."""


def ranks(rank, restart=0):
    return Ranks(rank, 0, 2, 2, f"{OWNER}.{restart}")


def soon(wait, act):
    """Begin to wait, act when that has looked in vain, and return what it found."""
    found = []
    waiting = threading.Thread(target=lambda: found.append(wait()), daemon=True)
    waiting.start()
    time.sleep(0.5)
    assert not found
    act()
    waiting.join(SOON)
    assert found, f"not within {SOON:g} s"
    return found[0]


def test_the_ranks_meet_though_the_second_one_looked_first(late):
    first = open_attempt(late.a / "logs", ranks(0))
    second = open_attempt(late.b / "logs", ranks(1))
    assert soon(second.wait_for_address, lambda: first.publish_address("10.0.0.1", 4711)) == ("10.0.0.1", 4711)


def test_a_rank_finds_the_attempt_though_there_was_not_even_a_folder(late):
    opened = []
    found = soon(
        lambda: open_attempt(late.b / "logs" / "train" / "expert-00", ranks(1)),
        lambda: opened.append(open_attempt(late.a / "logs" / "train" / "expert-00", ranks(0))),
    )
    assert found.number == opened[0].number == 1 and found.owner == ranks(0).owner


def test_a_rank_notices_at_once_that_its_job_has_begun_anew(late):
    open_attempt(late.a / "logs", ranks(0))
    second = open_attempt(late.b / "logs", ranks(1))
    assert not second.is_superseded()
    open_attempt(late.a / "logs", ranks(0, restart=1))
    assert second.is_superseded()


def test_attempts_of_two_nodes_in_turn_count_up(late):
    places = [late.a, late.b, late.a, late.b]
    numbers = [open_attempt(place / "logs", ranks(0, restart)).number for restart, place in enumerate(places)]
    assert numbers == [1, 2, 3, 4]


def test_the_first_word_about_the_end_stands_though_another_node_said_it(late):
    first, second = open_attempt(late.a / "logs", ranks(0)), open_attempt(late.b / "logs", ranks(1))
    assert read_records(late.b / "logs")[0].outcome is None
    first.close("failed", "disk full")
    second.close("complete")
    assert read_records(late.b / "logs")[0].outcome == read_records(late.a / "logs")[0].outcome == "failed"
    assert (first.folder / ENDED).exists()


def test_a_submission_of_another_client_counts_though_the_journal_was_looked_for_too_early(late):
    here, there = Journal(late.b / "journal.jsonl"), Journal(late.a / "journal.jsonl")
    assert here.submissions() == []
    token = there.record_intent("slurm", "north", ["train/expert-00"])
    assert [one.uuid for one in here.submissions()] == [token]


def test_the_file_that_stops_a_run_is_seen_by_a_node_that_looked_before(late):
    assert _stopped_by_user([RunDir(late.b)]) is None
    RunDir(late.a).stop.touch()
    assert "STOP" in _stopped_by_user([RunDir(late.b)])
    RunDir(late.a).stop.unlink()
    assert _stopped_by_user([RunDir(late.b)]) is None


def test_what_a_unit_reads_and_status_are_told_at_once_when_another_node_completes_it(late, tmp_path):
    units = plan_units(tiny(tmp_path))
    catalog = next(unit for unit in units if unit.key == CATALOG)
    reader = next(unit for unit in units if unit.requires == [CATALOG])
    here, there = RunDir(late.b), RunDir(late.a)
    finish([unit for unit in units if unit.key in catalog.requires], there)
    spec = Spec(**vars(reader), experiment={}, resources={})
    assert survey_units(units, here)[CATALOG].state is State.MISSING
    assert input_gate.missing_units(spec, here, here) == {CATALOG}
    with pytest.raises(InputsNotReady):
        gather_inputs(spec, here)
    finish([catalog], there)
    assert survey_units(units, here)[CATALOG].state is State.COMPLETE
    assert input_gate.missing_units(spec, here, here) == set()
    assert list(gather_inputs(spec, here).manifests) == [CATALOG]
