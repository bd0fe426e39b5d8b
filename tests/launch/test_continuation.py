"""What a full queue leaves out is submitted by a last small job: one at a time, and none after a cancel."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hpcddm.commands import submit as command
from hpcddm.commands.run_status import QueueAnswer as QueueOfARun
from hpcddm.errors import ExitCode, UserError
from hpcddm.launch import code_copy, continuation
from hpcddm.launch.array_items import make_items
from hpcddm.launch.base import Job, Limits
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import provenance
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CONTINUATION
from hpcddm.stages import submission_job
from tests.attempts import answer
from tests.helpers import hpcddm, tiny
from tests.launch.queues import Queue

ROOM = 5
CONTINUES = "hpcddm.commands.continue_submission"


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "run")
    run.root.mkdir()
    return run


@pytest.fixture
def items(run, tmp_path):
    experiment = tiny(tmp_path)
    command.store_experiment(experiment, run)
    return make_items(plan_units(experiment), experiment, run)


WAITING = {CONTINUATION: Job(JobId("9_0"), "pending")}
RUNNING = {CONTINUATION: Job(JobId("9_0"), "running")}


def handed_over(items, run, active=(), room=ROOM, only=None, **site):
    """What a queue with some room got."""
    queue = Queue(run, limits=Limits(free_jobs=room, reason="its limit for you"), room=room, **site)
    command.submit_arrays(items, run, queue, dict(active), only=only)
    return queue


def keys_of(arrays):
    return [key for array in arrays for key in array.keys]


def continued(run):
    return hpcddm("continue-submission", run.root)


def test_the_last_place_is_for_the_job_that_continues(run, items, capsys):
    queue = handed_over(items, run, resources={"gpus_per_node": 4, "memory_gb": 100})
    last, taken = queue.submitted[-1], keys_of(queue.submitted[:-1])
    assert (last.keys, len(taken)) == ([CONTINUATION], ROOM - 1)
    assert last.after == ["101"] and last.resources.extra_sbatch == (f"--nice={continuation.NICE}",)
    assert (last.resources.gpus_per_node, last.resources.memory_gb) == (0, 2)
    rest = continuation.read_remaining(run)
    assert {*rest.units, *taken} == {item.name for item in items} and not {*rest.units} & {*taken}
    assert f"job {100 + len(queue.submitted)} submits them when there is room" in capsys.readouterr().out


def test_one_that_waits_already_takes_the_newest_rest_and_one_that_runs_arranges_for_the_next(run, items, capsys):
    queue = handed_over(items, run, WAITING)
    taken = keys_of(queue.submitted)
    assert CONTINUATION not in taken and len(taken) == ROOM
    assert len(continuation.read_remaining(run).units) == len(items) - ROOM
    assert "job 9_0 submits them when there is room" in capsys.readouterr().out
    queue = handed_over(items, run, RUNNING)
    assert queue.submitted[-1].keys == [CONTINUATION] and queue.submitted[-1].after == ["101"]


def test_without_a_job_of_its_own_to_wait_for_it_waits_a_while_and_what_fits_leaves_nothing_behind(run, items):
    queue = Queue(run, limits=Limits(free_jobs=0), room=1)
    command.submit_arrays(items, run, queue, {})
    (only,) = queue.submitted
    assert (only.keys, only.after, only.begin_seconds) == ([CONTINUATION], [], 60 * continuation.BLIND_MINUTES)
    assert len(continuation.read_remaining(run).units) == len(items)
    assert len(keys_of(handed_over(items, run, room=len(items)).submitted)) == len(items)
    assert continuation.read_remaining(run) is None


@pytest.mark.parametrize("room, site", [(0, {}), (ROOM, {"continue_submission": False})])
def test_where_it_cannot_be_or_shall_not_be_the_user_is_told_to(run, items, capsys, room, site):
    taken = keys_of(handed_over(items, run, room=room, **site).submitted)
    assert CONTINUATION not in taken and len(taken) == room
    assert continuation.read_remaining(run) is None
    assert "later the same command submits them" in capsys.readouterr().out


def test_a_retry_that_fits_leaves_the_rest_to_the_job_that_waits_for_it(run, items):
    handed_over(items, run)
    before, (failed, *_) = continuation.read_remaining(run), items
    command.submit_arrays([failed], run, Queue(run), WAITING, only=[failed.name])
    assert continuation.read_remaining(run) == before
    takes_up = next(item for item in items if item.name in before.units)
    command.submit_arrays([failed, takes_up], run, Queue(run), WAITING, only=[failed.name])
    assert continuation.read_remaining(run).units == [unit for unit in before.units if unit != takes_up.name]


def test_a_retry_that_does_not_fit_joins_the_rest(run, items):
    handed_over(items, run)
    before, (failed, *_) = continuation.read_remaining(run), items
    handed_over([failed], run, WAITING, room=0, only=[failed.name])
    assert continuation.read_remaining(run) == replace(before, units=[*before.units, failed.name])


def test_of_a_rest_that_somebody_else_wrote_units_and_the_last_stage_alone_are_taken_over(run, items):
    own = continuation.RemainingUnits("north", ["train/monolith"], None, None, "cluster_report")
    continuation._store(replace(own, sweep="/evil/sweep.yaml", experiment="/evil/base.yaml"), run)
    (failed, *_) = items
    handed_over([failed], run, WAITING, room=0, only=[failed.name])
    assert continuation.read_remaining(run) == replace(own, units=["train/monolith", failed.name])


WRONG = [("site", "../evil"), ("site", "a/b"), ("units", ["../../evil"]), ("until", "../evil"), ("is_live", True)]


@pytest.mark.parametrize("key, value", [*WRONG, ("folder", "/")])
def test_a_rest_of_names_that_cannot_be_is_refused_in_one_line(run, key, value):
    run.jobs.mkdir()
    (run.jobs / "remaining.json").write_text(json.dumps({"site": "north", "units": ["x/y"], key: value}))
    done = continued(run)
    assert done.exit_code == 1 and "jobs/remaining.json: holds no usable JSON" in done.output
    assert len(done.output.splitlines()) == 1


@pytest.mark.parametrize("place, live", [("checkout", True), ("run/code/0123456789abcdef", False)])
def test_only_a_job_that_runs_from_a_checkout_lets_others_run_it(run, items, tmp_path, monkeypatch, place, live):
    continuation._store(continuation.RemainingUnits("north", [items[0].name]), run)
    (tmp_path / place / ".git").mkdir(parents=True)
    for module in (provenance, code_copy):
        monkeypatch.setattr(module, "AROUND", tmp_path / place)
    taken = []
    monkeypatch.setattr(
        "hpcddm.commands.continue_submission.trusted_site_and_template", lambda *arguments, **how: (None, {})
    )
    monkeypatch.setattr(
        "hpcddm.commands.continue_submission.submit_missing", lambda *given, live, **how: taken.append(live) or 0
    )
    assert continued(run).exit_code == 0 and taken == [live]


def test_a_run_is_not_continued_as_the_sweep_that_its_rest_names(run, items, tmp_path, monkeypatch):
    (tmp_path / "evil.yaml").write_text("")
    continuation._store(continuation.RemainingUnits("north", [items[0].name], str(tmp_path / "evil.yaml")), run)
    monkeypatch.setattr("hpcddm.commands.sweep.sweep", lambda *given, **how: pytest.fail("this is no sweep"))
    monkeypatch.setattr(f"{CONTINUES}.trusted_site_and_template", lambda *given, **how: (None, {}))
    monkeypatch.setattr(f"{CONTINUES}.submit_missing", lambda *given, **how: 0)
    assert continued(run).exit_code == 0


def test_what_joined_the_rest_while_a_job_continued_it_stays(run, items):
    handed_over(items, run)
    before = continuation.read_remaining(run)
    (late, *_) = [item.name for item in items if item.name not in before.units]
    continuation.schedule_remaining(replace(before, units=[late]), items, [late], run, Queue(run), WAITING)
    remaining = [item for item in items if item.name in before.units]
    command.submit_arrays(remaining, run, Queue(run), RUNNING, only=before.units)
    assert continuation.read_remaining(run).units == [late]


@pytest.mark.parametrize("room", [0, 1000])
def test_another_site_leaves_the_rest_alone(run, items, capsys, room):
    handed_over(items, run)
    before = continuation.read_remaining(run)
    handed_over(items[:1], run, WAITING, room, name="south")
    assert continuation.read_remaining(run) == before
    assert ("site north has units to submit in this folder first" in capsys.readouterr().out) == (room == 0)


def test_after_a_cancel_nothing_continues(run, items, monkeypatch):
    queue, jobs, gone = handed_over(items, run), {}, []
    for one in Journal(run.journal).submissions():
        jobs |= {key: Job(one.job.element(number), "pending") for number, key in enumerate(one.units)}
    answer(monkeypatch, jobs)
    monkeypatch.setattr("hpcddm.launch.slurm.launcher.SlurmLauncher.cancel", lambda self, *jobs: gone.extend(jobs))
    assert hpcddm("cancel", run.root, "train/monolith").exit_code == 0 and continuation.read_remaining(run) is not None
    done = hpcddm("cancel", run.root)
    assert done.exit_code == 0 and gone.index(jobs[CONTINUATION].id) < gone.index(jobs["shard/train-000"].id)
    assert continuation.read_remaining(run) is None and queue.submitted[-1].keys == [CONTINUATION]
    done = continued(run)
    assert done.exit_code == 0 and "nothing is left to submit" in done.stdout


@pytest.mark.parametrize("unseen", ["sweep.yaml", "base.yaml"])
def test_a_file_of_a_sweep_that_the_node_does_not_see_is_named(run, tmp_path, unseen):
    for file in {"sweep.yaml", "base.yaml"} - {unseen}:
        (tmp_path / file).write_text("")
    (run.root / "sweep.json").write_text("{}")
    files = (str(tmp_path / file) for file in ("sweep.yaml", "base.yaml"))
    continuation._store(continuation.RemainingUnits("north", ["a=1/x/y"], *files), run)
    done = continued(run)
    assert done.exit_code == 1
    assert done.output == f"error: {tmp_path}/{unseen}: not visible from here; repeat hpcddm sweep by hand\n"


def test_a_scheduler_that_does_not_answer_is_no_end_of_the_submission(run, monkeypatch):
    for code, error, words in (
        (ExitCode.HELD_OR_ABANDONED, RuntimeError, "another command is at work"),
        (ExitCode.SCHEDULER_UNREACHABLE, RuntimeError, "does not answer"),
        (ExitCode.FAILED, UserError, "exit code 1"),
    ):
        done = SimpleNamespace(returncode=code)
        monkeypatch.setattr(submission_job.subprocess, "run", lambda *given, done=done, **how: done)
        with pytest.raises(error, match=words):
            submission_job.run(None, SimpleNamespace(run=run))


def test_a_setting_sees_the_job_that_continues_its_sweep(run, monkeypatch):
    journal = Journal(run.journal)
    journal.record_submitted(journal.record_intent("slurm", "north", [CONTINUATION]), "9")
    states = lambda self, known: {unit: 1 for one in known for unit in one.units}  # noqa: E731
    monkeypatch.setattr("hpcddm.launch.slurm.launcher.SlurmLauncher.states", states)
    setting = RunDir(run.root / "guidance=1.0")
    setting.root.mkdir()
    assert CONTINUATION in QueueOfARun.query(setting).jobs
