"""A job whose inputs are still in the making, under ids that its dependency does not know, waits behind them."""

import pytest

from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.manifest import Manifest, publish
from hpcddm.runtime.gate import behind, lacking, names
from hpcddm.runtime.spec import Spec

EXPERTS = ["train/expert-00", "train/expert-01"]


@pytest.fixture
def run(tmp_path):
    """A run whose first expert is complete."""
    run = RunDir(tmp_path / "run")
    run.unit(EXPERTS[0]).mkdir(parents=True)
    publish(run.unit(EXPERTS[0]), Manifest("train", "expert-00", {}, {}, []))
    return run


def spec(*needs):
    return Spec("evaluate/0-8", 1, {}, {}, list(needs), 1)


def test_nothing_is_asked_for_when_all_is_there(run):
    assert lacking(spec(EXPERTS[0]), run, run) == set()


def test_what_is_there_may_be_made_anew_and_is_asked_for_with_what_is_missing(run):
    assert lacking(spec(*EXPERTS), run, run) == set(EXPERTS)


def test_what_it_can_do_without_is_waited_for_while_it_is_in_the_making(run):
    enough = Spec("evaluate/0-8", 1, {}, {}, [], 1, wants={EXPERTS[0]: {}, EXPERTS[1]: {}}, minimum=1)
    assert lacking(enough, run, run) == {EXPERTS[1]}


def test_the_elements_that_make_what_is_missing_are_waited_for_and_no_others(run, monkeypatch):
    monkeypatch.setattr("hpcddm.runtime.gate.slurm_element", lambda: "9_1")
    journal = Journal(run.journal)
    train, again = (journal.intend("slurm", "north", units, "x-train") for units in (EXPERTS, EXPERTS[1:]))
    other = journal.intend("slurm", "north", ["critics/judge"], "x-critics")
    wanted = lacking(spec(*EXPERTS), run, run)
    assert names(wanted, run) == [f"x-train-{train}", f"x-train-{again}"]
    queue = f"7_0|x-train-{train}\n7_1|x-train-{train}\n8_0|x-train-{again}\n9_1|x-train-{train}\n5_0|x-critics-{other}"
    assert behind(queue, wanted, run) == ["7_0", "7_1", "8_0"]
    assert behind("", wanted, run) == []


def test_units_of_a_sweep_are_known_by_the_run_that_makes_them(tmp_path, run):
    member = RunDir(tmp_path / "member")
    (member.root / "train").mkdir(parents=True)
    (member.root / EXPERTS[1]).symlink_to(f"../../run/{EXPERTS[1]}")
    assert lacking(spec(EXPERTS[1]), member, RunDir(tmp_path)) == {f"run/{EXPERTS[1]}"}


def test_the_table_of_a_sweep_waits_for_all_that_is_in_the_making(tmp_path, monkeypatch):
    monkeypatch.setattr("hpcddm.runtime.gate.slurm_element", lambda: "9_0")
    home = RunDir(tmp_path)
    journal = Journal(home.journal)
    token = journal.intend("slurm", "north", ["a/train/expert-00", "a/report/all"], "x-train")
    table = journal.intend("slurm", "north", ["table/all"], "x-table")
    wanted = lacking(Spec("table/all", 1, {}, {}, [], 1), home, home)
    assert wanted == {"a/train/expert-00", "a/report/all"}
    assert behind(f"11_1|x-train-{token}\n9_0|x-table-{table}", wanted, home) == ["11_1"]
