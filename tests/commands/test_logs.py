"""The verb logs where no attempt was ever opened: the scheduler's own files."""

import sys

import pytest

from hpcddm.launch.submission import store_experiment
from hpcddm.pipeline import expert_key
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir
from tests.helpers import hpcddm, tiny

EXPERTS = [expert_key(0), expert_key(1)]


@pytest.fixture
def run(tmp_path):
    """A run of which only the stored experiment is there."""
    run = RunDir(tmp_path / "run")
    store_experiment(tiny(tmp_path), run)
    run.jobs.mkdir()
    return run


def journal(run, scheduler, job, units=EXPERTS):
    token = Journal(run.journal).intend(scheduler, "north", units)
    if job:
        Journal(run.journal).submitted(token, job)


def test_slurm_kept_the_output_of_the_batch_script_and_of_the_rank(run):
    journal(run, "slurm", "17")
    (run.jobs / "17_0.out").write_text("not this element\n")
    (run.jobs / "17_1.out").write_text("python: command not found [/n]\n")
    (run.jobs / "17_1_2.out").write_text("")
    done = hpcddm("logs", run.root, EXPERTS[1], "--rank", 2)
    assert done.exit_code == 0 and f"no attempt at {EXPERTS[1]}" in done.stdout
    assert f"--- {run.jobs}/17_1.out\npython: command not found [/n]\n" in done.stdout
    assert done.stdout.endswith(f"--- {run.jobs}/17_1_2.out\n(empty)\n") and "not this" not in done.stdout
    assert "17_1_2" not in hpcddm("logs", run.root, EXPERTS[1]).stdout


def test_the_last_job_that_left_something_is_the_one_to_read(run):
    for job in ("17", "18", "19", None):
        journal(run, "slurm", job)
    for job in ("17", "18"):
        (run.jobs / f"{job}_0.out").write_text(f"I am {job}\n")
    assert hpcddm("logs", run.root, EXPERTS[0]).stdout.endswith("I am 18\n")


def test_what_nobody_kept_and_an_attempt_that_is_not_there_are_errors(run):
    journal(run, "slurm", "17")
    for arguments in ([EXPERTS[0]], ["route/router"], [EXPERTS[0], "--attempt", 1], [EXPERTS[0], "--attempt", 0]):
        (run.jobs / "17_0.out").write_text("kept") if "--attempt" in arguments else None
        done = hpcddm("logs", run.root, *arguments)
        assert done.exit_code == 2 and f"no attempt at '{arguments[0]}'" in done.stderr


def test_a_unit_that_died_on_this_machine_before_it_could_open_an_attempt(run, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    done = hpcddm("run-stage", run.root, "shard/train-000")
    assert done.exit_code == 1 and f"hpcddm logs {run.root} shard/train-000" in done.stderr
    (one,) = Journal(run.journal).submissions()
    (run.jobs / f"{one.job}_0_log.out").write_text("No module named torch\n")
    assert hpcddm("logs", run.root, "shard/train-000").stdout.endswith("No module named torch\n")
