"""The verb cancel: this run's jobs, told by token, and nothing else."""

from dataclasses import replace

import pytest

from hpcddm.errors import UserError
from hpcddm.launch import continuation
from hpcddm.runs.journal import Journal
from hpcddm.runs.unit_keys import CONTINUATION
from tests.commands.runs import bare_run
from tests.helpers import hpcddm
from tests.launch.queues import Queue

UNITS = ["train/expert-00", "train/expert-01", "draw/0000000-0000024", "report/all"]


@pytest.fixture
def run(tmp_path):
    """A run of which some units were submitted, one of them twice."""
    run = bare_run(tmp_path / "run")
    journal = Journal(run.journal)
    for job, units in (("7", UNITS[:2]), ("8", UNITS[1:])):
        journal.record_submitted(journal.record_intent("slurm", "north", units), job)
    return run


@pytest.fixture
def queue(run, monkeypatch):
    """The queue that the verb talks to; everything waits in it."""
    queue = Queue(run, alive=UNITS, state="pending", signal_lead_seconds=1)
    monkeypatch.setattr("hpcddm.commands.cancel.POLL_SECONDS", 0.01)
    monkeypatch.setattr("hpcddm.commands.cancel.create_launcher", lambda site, home: queue)
    return queue


def cancel(run, *arguments, code=0):
    done = hpcddm("cancel", run.root, *arguments)
    assert done.exit_code == code, done.output
    return done.output


def cancelled(run):
    """The units that the journal knows as cancelled, of both submissions."""
    return [one.cancelled for one in Journal(run.journal).submissions()]


def refuse(*jobs):
    if jobs:
        raise UserError("scancel: Access/permission denied")


def test_everything_goes_and_what_waits_goes_first(run, queue):
    cancel(run)
    assert queue.gone == ["8_2", "8_1", "8_0", "7_0"]


@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_scheduler_that_refuses_leaves_the_journal_as_it_was(run, queue, monkeypatch, state):
    queue.state = state
    monkeypatch.setattr(queue, "cancel", refuse)
    monkeypatch.setattr(queue, "signal_stop", refuse)
    assert "permission denied" in cancel(run, code=1)
    assert cancelled(run) == [(), ()]


def test_only_what_a_refused_request_named_is_kept(run, queue, monkeypatch):
    def one_runs(submissions):
        jobs = all_wait(submissions)
        return jobs | {UNITS[0]: replace(jobs[UNITS[0]], state="running")}

    all_wait = queue.states
    monkeypatch.setattr(queue, "signal_stop", refuse)
    monkeypatch.setattr(queue, "states", one_runs)
    cancel(run, code=1)
    first, second = cancelled(run)
    assert first == () and {*second} == {*UNITS[1:]}


@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_job_of_a_colleague_that_starts_while_slurm_refuses_its_cancellation_goes_on(run, queue, monkeypatch, state):
    def refuse_and_look(*jobs):
        seen.append(cancelled(run))
        refuse(*jobs)

    seen, queue.state = [], state
    monkeypatch.setattr("hpcddm.runs.group_permissions.current_user", lambda: "somebody-else")
    monkeypatch.setattr(queue, "cancel", refuse_and_look)
    monkeypatch.setattr(queue, "signal_stop", refuse_and_look)
    said = cancel(run, code=1)
    assert "permission denied" in said and "ask them" in said
    assert seen and all(known == [(), ()] for known in [*seen, cancelled(run)])


def test_the_rest_goes_only_when_the_scheduler_answers_and_is_told_of(run, queue):
    rest = continuation.RemainingUnits("north", ["train/monolith", "router/all"])
    queue.alive = None
    continuation._store(rest, run)
    cancel(run, code=4)
    assert continuation.read_remaining(run) == rest
    queue.alive = []
    assert "1 units that waited for room" in cancel(run, "train/monolith")
    assert continuation.read_remaining(run).units == ["router/all"]
    assert "1 units that waited for room in the queue are not submitted: router/all" in cancel(run)
    assert continuation.read_remaining(run) is None


def test_one_unit_of_a_sweep_that_a_job_continues_takes_nothing_else_out_of_its_rest(run, queue):
    run.experiment.unlink()
    (run.root / "sweep.json").write_text("{}")
    Journal(run.journal).record_intent("slurm", "north", [CONTINUATION])
    continuation._store(continuation.RemainingUnits("north", ["a/x", "b/x"], "s.yaml"), run)
    said = cancel(run, "b/x")
    assert continuation.read_remaining(run).units == ["a/x"] and "no job was cancelled" in said and queue.gone == []


def test_named_units_go_alone_and_what_will_miss_them_is_told(run, queue):
    said = cancel(run, "train/expert-00")
    assert queue.gone == ["7_0"] and "cancelled job 7_0  train/expert-00" in said
    assert "draw/0000000-0000024, report/all will find it missing" in said and "hpcddm retry" in said


def test_what_runs_is_told_to_save_after_the_journal_knows_it_and_is_waited_for(run, queue, monkeypatch):
    queue.state = "running"

    def leave(*jobs):
        assert cancelled(run)[0] == ("train/expert-00",)
        queue.dismissed += jobs
        queue.alive = []

    monkeypatch.setattr(queue, "signal_stop", leave)
    said = cancel(run, "train/expert-00")
    assert (queue.dismissed, queue.gone) == (["7_0"], []) and "save before they leave" in said and "gone after" in said


def test_who_does_not_leave_in_time_is_ended(run, queue):
    queue.state = "running"
    said = cancel(run, "train/expert-00")
    assert (queue.dismissed, queue.gone) == (["7_0"], ["7_0"]) and "ended without waiting: train/expert-00" in said


def test_nobody_is_waited_for_with_now_and_after_the_second_interrupt(run, queue, monkeypatch):
    queue.state = "running"
    cancel(run, "train/expert-00", "--now")
    assert (queue.dismissed, queue.gone) == ([], ["7_0"])

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("hpcddm.commands.cancel.time.sleep", interrupt)
    said = cancel(run, "train/expert-01")
    assert (queue.dismissed, queue.gone) == (["8_0"], ["7_0", "8_0"]) and said.count("Ctrl-C again") == 1


@pytest.mark.parametrize("alive, code, words", [([], 0, ""), (None, 4, "the scheduler does not answer; ")])
def test_nothing_in_the_queue_is_no_error_and_silence_is_and_neither_is_journalled(run, queue, alive, code, words):
    queue.alive = alive
    assert f"{words}nothing was cancelled" in cancel(run, code=code)
    assert cancelled(run) == [(), ()] and queue.gone == []


def test_a_run_without_a_queue_says_how_it_is_stopped(run):
    run.journal.unlink()
    Journal(run.journal).record_intent("local", "embedded", ["train/expert-00"])
    assert f"touch {run.root}/STOP" in cancel(run)


@pytest.mark.parametrize("name, gone", [("report", ["8_2"]), ("train", ["8_0", "7_0"]), ("report/all", ["8_2"])])
def test_a_stage_means_all_its_units(run, queue, name, gone):
    cancel(run, name)
    assert queue.gone == gone


@pytest.mark.parametrize("name", ["trian", "train/expert-7"])
def test_a_name_that_means_no_unit_is_answered_with_units_and_stages(run, queue, name):
    said = cancel(run, name, code=2)
    assert f"has no unit '{name}'; valid: shard/train-000, " in said and "; or a stage: shard, catalog, " in said
    assert queue.gone == []
