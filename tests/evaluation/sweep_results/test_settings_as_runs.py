"""Settings of a sweep seen by the verbs for runs: what they share has one bill, one log and one job."""

import json

from hpcddm.jobs import input_gate
from hpcddm.jobs.spec import read_spec
from hpcddm.launch.journal_dirs import submissions_of
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import REPORT
from tests.attempts import write_attempt
from tests.evaluation.sweep_results.taking import DRAW, names
from tests.helpers import hpcddm


def test_a_setting_knows_the_submissions_of_what_it_shares_by_its_own_names(sweep, home):
    sweep(1.0, 2.0)
    units = [unit for one in submissions_of(RunDir(home.root / "guidance=2.0")) for unit in one.units]
    assert {"train/expert-00", "cluster/all", "shard/train-001", DRAW, REPORT} <= set(units)
    assert f"guidance=1.0/{DRAW}" in units and units.count(DRAW) == 1


def test_a_job_that_finds_something_missing_asks_for_it_by_the_name_of_the_run_that_makes_it(sweep, home):
    sweep(1.0, 2.0)
    run = RunDir(home.root / "guidance=2.0")
    spec, _ = read_spec(run.spec(DRAW))
    wanted = input_gate.missing_units(spec, run, home)
    assert {"guidance=1.0/expert_lists/all", "guidance=1.0/train/expert-01", "guidance=1.0/catalog/all"} <= wanted
    awaited = [one.job_name for one in Journal(home.journal).submissions() if wanted & set(one.units)]
    assert input_gate.awaited_job_names(wanted, home) == {None: awaited}
    assert len(wanted) == len(spec.requires) + len(spec.optional) == 6


def test_what_is_shared_is_on_the_bill_of_the_setting_that_makes_it_and_its_log_is_read_from_both(sweep, home):
    sweep(1.0, 2.0)
    first, second = (RunDir(home.root / f"guidance={value}") for value in (1.0, 2.0))
    write_attempt(first, "train/expert-00", 1, ended={"outcome": "complete", "ended": 2.0})
    write_attempt(second, DRAW, 1, ended={"outcome": "complete", "ended": 2.0})
    for run, key in ((first, "train/expert-00"), (second, DRAW)):
        bill = json.loads(hpcddm("cost", run.root, "--records", "--json").stdout)
        assert [row["unit"] for row in bill["attempts"]] == [key]
        assert "attempt 1 says this" in hpcddm("logs", run.root, "train/expert-00").stdout


def test_commands_for_runs_say_what_a_sweep_and_its_settings_are(sweep, home, tmp_path):
    sweep(1.0)
    done = hpcddm("status", home.root)
    assert done.exit_code == 2 and "a sweep; each of its settings is a run" in done.output
    sweep_run = home.root / "guidance=1.0"
    for call in (("submit", tmp_path / "tiny.yaml", "--run-dir", sweep_run), ("retry", sweep_run)):
        done = hpcddm(*call)
        assert done.exit_code == 2 and "a setting of a sweep; the same hpcddm sweep " in done.output, call


def test_cancel_ends_the_jobs_of_a_sweep_or_of_one_setting_but_not_what_others_share(sweep, home, monkeypatch):
    queue, _ = sweep(1.0, 2.0)
    queue.alive = names(queue)
    monkeypatch.setattr("hpcddm.commands.cancel.create_launcher", lambda site, run: queue)
    done = hpcddm("cancel", home.root / "guidance=2.0", "--now")
    assert done.exit_code == 0 and len(queue.gone) == 4 and "guidance=2.0/report/all" in done.output
    assert "draw/1" in hpcddm("cancel", home.root / "guidance=2.0", "draw/1", "--now").output
    hpcddm("cancel", home.root, "--now")
    assert len(queue.gone) == 4 + 29
