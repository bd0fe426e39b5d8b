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
    return Spec("draw/0-8", {}, {}, list(needs), {})


@pytest.fixture(autouse=True)
def job(monkeypatch):
    """The job that asks: element 1 of an array on the default cluster."""
    variables = {"ARRAY_JOB_ID": "9", "ARRAY_TASK_ID": "1", "JOB_NAME": "x-draw-aaaabbbbcccc"}
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.delenv("HPCDDM_CLUSTER", raising=False)


def test_all_is_asked_for_where_something_is_missing_and_nothing_else(run):
    assert missing_units(spec(EXPERTS[0]), run, run) == set()
    # What is there may be made anew.
    assert missing_units(spec(*EXPERTS), run, run) == set(EXPERTS)
    enough = Spec("draw/0-8", {}, {}, [], {}, optional={EXPERTS[0]: {}, EXPERTS[1]: {}}, min_optional=1)
    assert missing_units(enough, run, run) == {EXPERTS[1]}, "what it can do without, while it is in the making"


def test_the_elements_that_make_what_is_missing_are_waited_for_and_no_others(run):
    train, again = intent(run, EXPERTS, "x-train"), intent(run, EXPERTS[1:], "x-train")
    other = intent(run, ["evaluators/classifier"], "x-evaluators")
    wanted = missing_units(spec(*EXPERTS), run, run)
    assert awaited_job_names(wanted, run) == {None: [f"x-train-{train}", f"x-train-{again}"]}
    queue = f"7_0|x-train-{train}\n7_1|x-train-{train}\n8_0|x-train-{again}\n5_0|x-evaluators-{other}"
    assert start_flag(queue, wanted, run, 300) == "--dependency=afterany:7_0:7_1:8_0"
    assert start_flag("", wanted, run, 300) == ""
    unknown = f"7_2|x-train-{train}\n7_99999|x-train-{train}\n7_\u00b2|x-train-{train}"
    assert start_flag(unknown, wanted, run, 300) == "", "elements that the journal does not know"


def intent(home, units, name, cluster=None, site="north"):
    return Journal(home.journal).record_intent("slurm", site, units, name, cluster)


def test_a_plain_job_is_waited_for_by_its_bare_id(run, monkeypatch):
    train, own = intent(run, EXPERTS[1:], "x-train"), intent(run, ["report/all"], "x-report")
    monkeypatch.setenv("SLURM_JOB_NAME", f"x-report-{own}")
    monkeypatch.setattr("hpcddm.jobs.input_gate.slurm_element", lambda: "9_0")
    queue = f"7_N/A|x-train-{train}\n9_N/A|x-report-{own}"
    assert start_flag(queue, {*EXPERTS, "report/all"}, run, 300) == "--dependency=afterany:7"


def test_what_another_cluster_makes_is_looked_for_later_and_equal_ids_there_are_no_matter(run, monkeypatch):
    monkeypatch.setenv("HPCDDM_CLUSTER", "south")
    north = intent(run, EXPERTS[:1], "x-train", "north", "both")
    south = intent(run, EXPERTS[1:], "x-train", "south", "both")
    own = intent(run, ["evaluators/classifier", "draw/0-8"], "x-draw", "south", "both")
    monkeypatch.setenv("SLURM_JOB_NAME", f"x-draw-{own}")
    assert awaited_job_names(set(EXPERTS), run) == {"north": [f"x-train-{north}"], "south": [f"x-train-{south}"]}
    there, here = f"9_0|x-train-{north}\n", f"9_0|x-train-{south}\n"
    assert start_flag(there, set(EXPERTS), run, 300) == "--begin=now+60"
    assert start_flag(there + here, set(EXPERTS), run, 300) == "--dependency=afterany:9_0", "first what is nearer"
    assert start_flag(f"9_1|x-draw-{own}", {"draw/0-8"}, run, 300) == "", "nobody waits for himself"
    assert start_flag("?|north", set(EXPERTS), run, 300) == "--begin=now+60", "no answer is no end"


def test_a_cluster_that_never_answers_is_given_up_after_a_day_of_silence(run, monkeypatch):
    token = intent(run, EXPERTS, "x-train", "north", "both")
    run.jobs.mkdir()
    now, reasons = time.time(), []
    answers = [("?|north", 0), ("?|north", 0.9), (f"9_0|x-train-{token}", 0.95), ("?|north", 1.1), ("?|north", 2.2)]
    for queue, days in answers:
        monkeypatch.setattr("hpcddm.jobs.input_gate.time.time", lambda days=days: now + days * MAX_UNREACHABLE_SECONDS)
        reasons.append(unreachable_cluster(queue, set(EXPERTS), run))
    assert reasons[:4] == [""] * 4 and "cluster north" in reasons[4] and "submit again" in reasons[4]


def test_a_job_whose_unit_was_cancelled_is_told_so(run, monkeypatch, capsys):
    token = intent(run, [EXPERTS[0], "draw/0-8"], "x-draw")
    path, map_path = Spec("draw/0-8", {}, {}, [], {}).write(run), run.jobs / f"{token}.json"
    run.jobs.mkdir()
    map_path.write_text(json.dumps({"specs": [f"../{path.relative_to(run.root)}"] * 2}))
    monkeypatch.setenv("SLURM_JOB_NAME", f"x-draw-{token}")
    monkeypatch.setattr("sys.argv", ["gate", str(map_path)])
    for units, words in (([EXPERTS[0]], ""), (["draw/0-8"], "!|cancelled\n")):
        Journal(run.journal).record_cancelled(token, units)
        main()
        assert capsys.readouterr().out == words


def test_units_of_a_sweep_are_known_by_the_run_that_makes_them(tmp_path, run):
    linked = RunDir(tmp_path / "linked")
    (linked.root / "train").mkdir(parents=True)
    (linked.root / EXPERTS[1]).symlink_to(f"../../run/{EXPERTS[1]}")
    assert missing_units(spec(EXPERTS[1]), linked, RunDir(tmp_path)) == {f"run/{EXPERTS[1]}"}


def test_the_table_of_a_sweep_waits_for_all_that_is_in_the_making(tmp_path):
    home = RunDir(tmp_path)
    token = intent(home, ["a/train/expert-00", "a/report/all"], "x-train")
    table = intent(home, ["table/all"], "x-table")
    wanted = missing_units(Spec("table/all", {}, {}, [], {}), home, home)
    assert wanted == {"a/train/expert-00", "a/report/all"}
    queue = f"11_1|x-train-{token}\n9_0|x-table-{table}"
    assert start_flag(queue, wanted, home, 300) == "--dependency=afterany:11_1"


def test_the_time_of_silence_is_removed_in_the_run_and_nowhere_else(run, tmp_path):
    intent(run, EXPERTS, "x-train", "annex")
    precious = tmp_path / "user" / "aaaabbbbcccc@annex.silent"
    precious.parent.mkdir()
    precious.write_text("precious")
    run.jobs.symlink_to(precious.parent)
    guarded_writes.guard(run.root)
    with pytest.raises(Unreadable, match="jobs: is a link"):
        unreachable_cluster("", set(EXPERTS), run)
    assert precious.read_text() == "precious"
