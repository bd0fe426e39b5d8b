"""The verb status: readable wherever it is printed, and never a traceback."""

import json
import time
from dataclasses import replace

import pytest

from hpcddm.launch.submission import store_experiment
from hpcddm.pipeline import expert_key, plan
from hpcddm.rundir import manifest
from hpcddm.rundir.heartbeat import Pulse
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.attempt import open_attempt
from hpcddm.runtime.ranks import Ranks
from tests.helpers import finish, hpcddm, tiny

EXPERT = expert_key(1)


@pytest.fixture
def run(tmp_path):
    """A complete run, in a place with a name that rich takes for markup."""
    run, experiment = RunDir(tmp_path / "[/b] run[red]"), tiny(tmp_path)
    store_experiment(experiment, run)
    finish(plan(experiment), run)
    return run


def status(run):
    done = hpcddm("status", run.root)
    assert done.exit_code == 0, done.output
    return done.stdout


def row(run, key=EXPERT):
    def no_constant(text):
        raise AssertionError(f"{text} is no JSON")

    units = json.loads(hpcddm("status", run.root, "--json").stdout, parse_constant=no_constant)["units"]
    return {one["unit"]: one for one in units}[key]


def unfinished(run, **figures):
    """Take an expert's manifest away and open an attempt at it; return the attempt."""
    (run.unit(EXPERT) / "manifest.json").unlink()
    attempt = open_attempt(run.logs(EXPERT), Ranks(0, 0, 1, 1, "me"))
    Pulse(run.unit(EXPERT), "me", attempt.number, "host").beat(1, 2, **figures)
    return attempt


def test_what_looks_like_markup_is_printed_as_it_is(run):
    unfinished(run).close("failed", "[/red] no such tag [bold]")
    shown = status(run)
    assert "[/red] no such tag [bold]" in shown and f"hpcddm logs {run.root} {EXPERT}" in shown
    (run.unit("shard/train-000") / "output.bin").unlink()
    assert row(run, "shard/train-000")["reason"] == f"{run.unit('shard/train-000')}/output.bin is missing"
    assert "[/b] run[red]" in status(run)


def test_a_reason_is_readable_where_the_output_is_no_terminal(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    reason = "a reason of about sixty letters stands on one line of the table"
    unfinished(run).close("failed", reason)
    assert reason in status(run)


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
def test_json_holds_no_number_that_is_none(run, loss):
    unfinished(run, loss=0.5)
    beat = run.unit(EXPERT) / "heartbeat.json"
    beat.write_text(beat.read_text().replace("0.5", json.dumps(loss)))
    assert row(run)["loss"] is None and row(run)["state"] == "running"
    assert str(loss) in status(run)


def test_a_stale_unit_gives_the_words_of_submit(run):
    before = manifest.read(run.unit(EXPERT))
    manifest.publish(run.unit(EXPERT), replace(before, settings=before.settings | {"seed": 7}))
    last = status(run).splitlines()[-1]
    assert last.startswith("submit will refuse: settings changed") and "seed: 7 -> 0" in last
    assert last.endswith("--redo train")


def test_a_job_that_died_before_python_points_to_what_the_scheduler_kept(run, monkeypatch):
    (run.unit(EXPERT) / "manifest.json").unlink()
    journal = Journal(run.journal)
    journal.submitted(journal.intend("local", "embedded", [EXPERT]), "17")
    assert row(run)["state"] == "starting"
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 60)
    assert row(run)["reason"] == "it left the queue without a word; 'hpcddm logs' shows what the scheduler kept"
    assert status(run).splitlines()[-1].startswith(f"look at: hpcddm logs {run.root} {EXPERT}")


def test_foreign_things_in_the_bookkeeping_are_passed_over(run):
    run.journal.write_text("[]\n3\n{}\n")
    (run.logs(EXPERT) / "attempt-1.bak").mkdir(parents=True)
    content = json.loads((run.unit(EXPERT) / "manifest.json").read_text())
    (run.unit(EXPERT) / "manifest.json").write_text(json.dumps(content | {"settings": "text"}))
    assert row(run)["state"] == "missing" and row(run)["attempts"] == 0
    assert EXPERT in status(run)
