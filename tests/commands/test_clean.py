"""The verb clean: says before what goes, and touches nothing that anybody may still need."""

import json
from types import SimpleNamespace

import pytest

from hpcddm.commands import clean as command
from hpcddm.launch.base import Job
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.job import JobId
from hpcddm.runs.lease import lease
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from tests.attempts import answer, beat, submitted, write_attempt
from tests.commands.runs import complete_run
from tests.helpers import hpcddm

EXPERT, OTHER = expert_key(0), expert_key(1)


def state(run, key, name, trajectory):
    folder = run.unit(key) / "state" / name
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"trajectory": trajectory, "images": 64}))
    (folder / "rank0.pt").write_bytes(b"x" * 1000)
    return folder


@pytest.fixture
def run(tmp_path):
    """A run with two experts to be made, and with something of everything that can pile up."""
    run = complete_run(tmp_path / "run", EXPERT, OTHER)
    for key in (EXPERT, OTHER):
        for number in (1, 2):
            write_attempt(run, key, number, ended={"outcome": "stopped", "reason": "SIGUSR2"})
    (run.superseded / "17" / "report").mkdir(parents=True)
    (run.superseded / "17" / "report" / "index.html").write_text("x" * 500)
    return run


def files(run):
    found = {str(path.relative_to(run.root)) for path in run.root.rglob("*") if path.is_file()}
    return found - {run.lock.name}


def trajectory(run, key):
    unit = next(unit for unit in plan_units(stored_experiment(run)) if unit.key == key)
    return unit.expected({need: manifest.read(run.unit(need)) for need in unit.requires}).trajectory


def test_what_nobody_needs_goes_and_all_else_stays(run):
    good = state(run, EXPERT, "images-0000064", trajectory(run, EXPERT))
    bad = state(run, EXPERT, "images-0000128", "of other settings")
    left = state(run, MONOLITH, "images-0000064", "any")
    gone = state(run, "train/expert-07", "images-0000064", "any")
    before = files(run)
    told = hpcddm("clean", run.root)
    assert told.exit_code == 0 and "nothing was removed: repeat with --yes" in told.stdout and files(run) == before
    assert "in 9 files could go" in told.stdout, told.stdout
    done = hpcddm("clean", run.root, "--yes")
    assert done.exit_code == 0 and "removed" in done.stdout, done.output
    assert good.is_dir() and not bad.exists() and not left.exists() and not gone.exists()
    removed = before - files(run)
    logs = {f"logs/{key}/attempt-1/rank0.log" for key in (EXPERT, OTHER)}
    states = {f"{one.relative_to(run.root)}/{name}" for one in (bad, left, gone) for name in ("state.json", "rank0.pt")}
    assert removed == logs | states | {"superseded/17/report/index.html"} and files(run) < before
    assert hpcddm("clean", run.root).stdout.endswith("nothing to remove\n")


def test_the_last_state_of_a_finished_training_goes_under_a_name_of_its_own(run):
    kept = state(run, MONOLITH, "images-0000064", trajectory(run, MONOLITH))
    told = hpcddm("clean", run.root)
    assert f"last states of finished trainings, which more images would continue: {MONOLITH}/state" in told.stdout
    hpcddm("clean", run.root, "--yes")
    assert not kept.exists()


@pytest.mark.parametrize("job", ["pending", "running", "held", "suspended", None])
def test_a_unit_in_a_queue_or_that_shows_life_is_left_alone(run, monkeypatch, job):
    if job:
        answer(monkeypatch, {EXPERT: Job(JobId("17_0"), job)})
        submitted(run, [EXPERT])
    else:
        write_attempt(run, EXPERT, 3, heartbeat=beat())
    kept = state(run, EXPERT, "images-0000128", "of other settings")
    hpcddm("clean", run.root, "--yes")
    assert kept.is_dir() and (run.logs(EXPERT) / "attempt-1" / "rank0.log").exists()
    assert not (run.logs(OTHER) / "attempt-1" / "rank0.log").exists()


def test_where_nobody_knows_what_runs_nothing_goes(run, monkeypatch):
    answer(monkeypatch, None)
    submitted(run, [EXPERT])
    before = files(run)
    done = hpcddm("clean", run.root, "--yes")
    assert done.exit_code == 4 and "does not answer" in done.stderr and files(run) >= before


def test_a_state_stays_while_what_it_was_made_of_is_not_settled(run):
    (run.unit("cluster/all") / "manifest.json").unlink()
    kept = state(run, EXPERT, "images-0000128", "of whatever")
    hpcddm("clean", run.root, "--yes")
    assert kept.is_dir()


def test_while_the_user_thinks_others_may_submit_and_what_they_take_up_again_stays(run, monkeypatch):
    bad = state(run, EXPERT, "images-0000128", "of other settings")
    gone = state(run, "train/expert-07", "images-0000064", "any")

    def think(question):
        with lease(run.lock, "another submit"):
            answer(monkeypatch, {EXPERT: Job(JobId("17_0"), "pending")})
            submitted(run, [EXPERT])
        return True

    monkeypatch.setattr(command.click, "confirm", think)
    monkeypatch.setattr(command.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert command.clean.callback(run.root, yes=False) == 0
    assert bad.is_dir() and (run.logs(EXPERT) / "attempt-1" / "rank0.log").exists()
    assert not gone.exists() and not (run.logs(OTHER) / "attempt-1" / "rank0.log").exists()


def test_what_belongs_to_somebody_else_is_named_with_its_owner(run, monkeypatch):
    kept = state(run, EXPERT, "images-0000128", "of other settings")

    def refused(path, dir_fd):
        raise PermissionError(13, "Permission denied", str(kept / "rank0.pt"))

    monkeypatch.setattr("hpcddm.files.guarded_writes.shutil.rmtree", refused)
    done = hpcddm("clean", run.root, "--yes")
    assert done.exit_code == 1 and f"{kept / 'rank0.pt'}: cannot be removed (Permission denied)" in done.stderr
    assert f"belongs to {kept.owner()}, who can run hpcddm clean" in done.stderr
