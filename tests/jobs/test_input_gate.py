"""A job whose inputs are still in the making, under ids that its dependency does not know, waits behind them."""

import json
import time

import pytest

from hpcddm.files import guarded_writes
from hpcddm.files.checked_reads import Unreadable
from hpcddm.jobs.input_gate import (
    MAX_UNREACHABLE_SECONDS,
    awaited_job_names,
    main,
    missing_units,
    seconds_to_next_check,
    start_flag,
    unreachable_cluster,
)
from hpcddm.jobs.spec import Spec
from hpcddm.runs.journal import Journal
from hpcddm.runs.manifest import Manifest, publish
from hpcddm.runs.run_dir import RunDir

EXPERTS = ["train/expert-00", "train/expert-01"]


@pytest.fixture
def run(tmp_path):
    """A run whose first expert is complete."""
    run = RunDir(tmp_path / "run")
    run.unit(EXPERTS[0]).mkdir(parents=True)
    publish(run.unit(EXPERTS[0]), Manifest("train", "expert-00", {}, {}, []))
    return run


def spec(*needs):
    return Spec("evaluate/0-8", {}, {}, list(needs), {})


@pytest.fixture(autouse=True)
def job(monkeypatch):
    """The job that asks: element 1 of an array on the default cluster."""
    variables = {"ARRAY_JOB_ID": "9", "ARRAY_TASK_ID": "1", "JOB_NAME": "x-evaluate-aaaabbbbcccc"}
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.delenv("HPCDDM_CLUSTER", raising=False)


def test_nothing_is_asked_for_when_all_is_there(run):
    assert missing_units(spec(EXPERTS[0]), run, run) == set()


def test_what_is_there_may_be_made_anew_and_is_asked_for_with_what_is_missing(run):
    assert missing_units(spec(*EXPERTS), run, run) == set(EXPERTS)


def test_what_it_can_do_without_is_waited_for_while_it_is_in_the_making(run):
    enough = Spec("evaluate/0-8", {}, {}, [], {}, optional={EXPERTS[0]: {}, EXPERTS[1]: {}}, min_optional=1)
    assert missing_units(enough, run, run) == {EXPERTS[1]}


def test_the_elements_that_make_what_is_missing_are_waited_for_and_no_others(run):
    journal = Journal(run.journal)
    train, again = (journal.record_intent("slurm", "north", units, "x-train") for units in (EXPERTS, EXPERTS[1:]))
    other = journal.record_intent("slurm", "north", ["evaluators/classifier"], "x-evaluators")
    wanted = missing_units(spec(*EXPERTS), run, run)
    assert awaited_job_names(wanted, run) == {None: [f"x-train-{train}", f"x-train-{again}"]}
    queue = f"7_0|x-train-{train}\n7_1|x-train-{train}\n8_0|x-train-{again}\n5_0|x-evaluators-{other}"
    assert start_flag(queue, wanted, run, 300) == "--dependency=afterany:7_0:7_1:8_0"
    assert start_flag("", wanted, run, 300) == ""


def test_a_plain_job_is_waited_for_by_its_bare_id(run, monkeypatch):
    journal = Journal(run.journal)
    train = journal.record_intent("slurm", "north", EXPERTS[1:], "x-train")
    own = journal.record_intent("slurm", "north", ["report/all"], "x-report")
    monkeypatch.setenv("SLURM_JOB_NAME", f"x-report-{own}")
    monkeypatch.setattr("hpcddm.jobs.input_gate.slurm_element", lambda: "9_0")
    queue = f"7_N/A|x-train-{train}\n9_N/A|x-report-{own}"
    assert start_flag(queue, {*EXPERTS, "report/all"}, run, 300) == "--dependency=afterany:7"


def test_what_another_cluster_makes_is_looked_for_later_and_equal_ids_there_are_no_matter(run, monkeypatch):
    monkeypatch.setenv("HPCDDM_CLUSTER", "south")
    journal = Journal(run.journal)
    north = journal.record_intent("slurm", "both", EXPERTS[:1], "x-train", "north")
    south = journal.record_intent("slurm", "both", EXPERTS[1:], "x-train", "south")
    own = journal.record_intent("slurm", "both", ["evaluators/classifier", "evaluate/0-8"], "x-evaluate", "south")
    monkeypatch.setenv("SLURM_JOB_NAME", f"x-evaluate-{own}")
    assert awaited_job_names(set(EXPERTS), run) == {"north": [f"x-train-{north}"], "south": [f"x-train-{south}"]}
    there, here = f"9_0|x-train-{north}\n", f"9_0|x-train-{south}\n"
    assert start_flag(there, set(EXPERTS), run, 300) == "--begin=now+60"
    assert start_flag(there + here, set(EXPERTS), run, 300) == "--dependency=afterany:9_0", "first what is nearer"
    assert start_flag(f"9_1|x-evaluate-{own}", {"evaluate/0-8"}, run, 300) == "", "nobody waits for himself"
    assert start_flag("?|north", set(EXPERTS), run, 300) == "--begin=now+60", "no answer is no end"


def test_looks_at_another_cluster_become_rarer_up_to_the_longest_time():
    assert [seconds_to_next_check(age, 300) for age in (0, 240, 400, 1000, 9000)] == [60, 60, 100, 250, 300]
    assert seconds_to_next_check(0, 1) == 1


def test_a_cluster_that_never_answers_is_given_up_after_a_day_of_silence(run, monkeypatch):
    token = Journal(run.journal).record_intent("slurm", "both", EXPERTS, "x-train", "north")
    run.jobs.mkdir()
    now = time.time()
    answers = [("?|north", 0), ("?|north", 0.9), (f"9_0|x-train-{token}", 0.95), ("?|north", 1.1), ("?|north", 2.2)]
    reasons = []
    for queue, days in answers:
        monkeypatch.setattr("hpcddm.jobs.input_gate.time.time", lambda days=days: now + days * MAX_UNREACHABLE_SECONDS)
        reasons.append(unreachable_cluster(queue, set(EXPERTS), run))
    assert reasons[:4] == [""] * 4 and "cluster north" in reasons[4] and "submit again" in reasons[4]


def test_a_job_whose_unit_was_cancelled_is_told_so(run, monkeypatch, capsys):
    journal = Journal(run.journal)
    token = journal.record_intent("slurm", "north", [EXPERTS[0], "evaluate/0-8"], "x-evaluate")
    path = Spec("evaluate/0-8", {}, {}, [], {}).write(run)
    run.jobs.mkdir()
    map_path = run.jobs / f"{token}.json"
    map_path.write_text(json.dumps({"specs": [f"../{path.relative_to(run.root)}"] * 2}))
    monkeypatch.setenv("SLURM_JOB_NAME", f"x-evaluate-{token}")
    monkeypatch.setattr("sys.argv", ["gate", str(map_path)])
    for units, words in (([EXPERTS[0]], ""), (["evaluate/0-8"], "!|cancelled\n")):
        journal.record_cancelled(token, units)
        main()
        assert capsys.readouterr().out == words


def test_units_of_a_sweep_are_known_by_the_run_that_makes_them(tmp_path, run):
    linked = RunDir(tmp_path / "linked")
    (linked.root / "train").mkdir(parents=True)
    (linked.root / EXPERTS[1]).symlink_to(f"../../run/{EXPERTS[1]}")
    assert missing_units(spec(EXPERTS[1]), linked, RunDir(tmp_path)) == {f"run/{EXPERTS[1]}"}


def test_the_table_of_a_sweep_waits_for_all_that_is_in_the_making(tmp_path):
    home = RunDir(tmp_path)
    journal = Journal(home.journal)
    token = journal.record_intent("slurm", "north", ["a/train/expert-00", "a/report/all"], "x-train")
    table = journal.record_intent("slurm", "north", ["table/all"], "x-table")
    wanted = missing_units(Spec("table/all", {}, {}, [], {}), home, home)
    assert wanted == {"a/train/expert-00", "a/report/all"}
    queue = f"11_1|x-train-{token}\n9_0|x-table-{table}"
    assert start_flag(queue, wanted, home, 300) == "--dependency=afterany:11_1"


def test_an_element_that_the_journal_does_not_know_is_not_waited_for(run):
    train = Journal(run.journal).record_intent("slurm", "north", EXPERTS, "x-train")
    queue = f"7_2|x-train-{train}\n7_99999|x-train-{train}\n7_\u00b2|x-train-{train}"
    assert start_flag(queue, set(EXPERTS), run, 300) == ""


def test_the_time_of_silence_is_removed_in_the_run_and_nowhere_else(run, tmp_path):
    Journal(run.journal).record_intent("slurm", "north", EXPERTS, "x-train", "annex")
    (tmp_path / "user").mkdir()
    precious = tmp_path / "user" / "aaaabbbbcccc@annex.silent"
    precious.write_text("precious")
    run.jobs.symlink_to(precious.parent)
    guarded_writes.guard(run.root)
    with pytest.raises(Unreadable, match="jobs: is a link"):
        unreachable_cluster("", set(EXPERTS), run)
    assert precious.read_text() == "precious"
