"""What a full queue leaves out is submitted by a last small job: one at a time, and none after a cancel."""

import pytest

from hpcddm.commands import submit as command
from hpcddm.launch import continuation
from hpcddm.launch.base import Job
from hpcddm.launch.chunks import Limits
from hpcddm.launch.items import items_of
from hpcddm.pipeline import CONTINUATION, plan
from hpcddm.rundir.job import JobId
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir
from hpcddm.site import Site
from tests.attempts import answer
from tests.helpers import hpcddm, tiny
from tests.launch.queues import Queue

ROOM = 5


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "run")
    run.root.mkdir()
    return run


@pytest.fixture
def items(run, tmp_path):
    experiment = tiny(tmp_path)
    command.store_experiment(experiment, run)
    return items_of(plan(experiment), experiment, run)


def handed_over(items, run, active=(), room=ROOM, **site):
    """What a queue with some room got."""
    queue = Queue(run, limits=Limits(room=room, reason="its limit for you"), room=room, **site)
    command.hand_over(items, run, queue, dict(active))
    return queue


def test_the_last_place_is_for_the_job_that_continues(run, items, capsys):
    queue = handed_over(items, run, resources={"gpus_per_node": 4, "memory_gb": 100})
    last = queue.submitted[-1]
    taken = [key for array in queue.submitted[:-1] for key in array.keys]
    assert (last.keys, len(taken)) == ([CONTINUATION], ROOM - 1)
    assert last.after == ["101"] and last.resources.extra_sbatch == (f"--nice={continuation.NICE}",)
    assert (last.resources.gpus_per_node, last.resources.memory_gb) == (0, 2)
    rest = continuation.read(run)
    assert {*rest.units, *taken} == {item.name for item in items} and not {*rest.units} & {*taken}
    assert f"job {100 + len(queue.submitted)} submits them when there is room" in capsys.readouterr().out


def test_one_that_waits_already_takes_the_newest_rest(run, items, capsys):
    waiting = Job(JobId("9_0"), "pending")
    queue = handed_over(items, run, {CONTINUATION: waiting})
    taken = [key for array in queue.submitted for key in array.keys]
    assert CONTINUATION not in taken and len(taken) == ROOM
    assert len(continuation.read(run).units) == len(items) - ROOM
    assert "job 9_0 submits them when there is room" in capsys.readouterr().out


def test_one_that_runs_arranges_for_the_next(run, items):
    queue = handed_over(items, run, {CONTINUATION: Job(JobId("9_0"), "running")})
    assert queue.submitted[-1].keys == [CONTINUATION] and queue.submitted[-1].after == ["101"]


def test_without_a_job_of_its_own_to_wait_for_it_waits_a_while(run, items):
    queue = Queue(run, limits=Limits(room=0), room=1)
    command.hand_over(items, run, queue, {})
    (only,) = queue.submitted
    assert (only.keys, only.after, only.begin_seconds) == ([CONTINUATION], [], 60 * continuation.BLIND_MINUTES)


@pytest.mark.parametrize("room, site", [(0, {}), (ROOM, {"continue_submission": False})])
def test_where_it_cannot_be_or_shall_not_be_the_user_is_told_to(run, items, capsys, room, site):
    queue = handed_over(items, run, room=room, **site)
    assert CONTINUATION not in [key for array in queue.submitted for key in array.keys]
    assert continuation.read(run) is None
    assert "later the same command submits them" in capsys.readouterr().out
    assert len([key for array in queue.submitted for key in array.keys]) == room


def test_what_fits_whole_leaves_nothing_behind(run, items):
    handed_over(items, run)
    queue = handed_over(items, run, room=len(items))
    assert len([key for array in queue.submitted for key in array.keys]) == len(items)
    assert continuation.read(run) is None


def test_after_a_cancel_nothing_continues(run, items, monkeypatch):
    queue = handed_over(items, run)
    jobs = {key: Job(one.job.element(n), "pending") for one in Journal(run.journal).submissions()
            for n, key in enumerate(one.units)}  # fmt: skip
    answer(monkeypatch, jobs)
    gone = []
    monkeypatch.setattr("hpcddm.launch.slurm.Slurm.cancel", lambda self, *jobs: gone.extend(jobs))
    assert hpcddm("cancel", run.root, "train/monolith").exit_code == 0 and continuation.read(run) is not None
    done = hpcddm("cancel", run.root)
    assert done.exit_code == 0 and gone.index(jobs[CONTINUATION].id) < gone.index(jobs["shard/train-000"].id)
    assert continuation.read(run) is None and queue.submitted[-1].keys == [CONTINUATION]
    done = hpcddm("continue-submission", run.root)
    assert done.exit_code == 0 and "nothing is left to submit" in done.stdout


def test_a_site_may_say_what_the_job_asks_for():
    site = Site(name="x", scheduler="slurm", resources={"nodes": 4}, stages={"submission": {"partition": "short"}})
    assert (site.resources_for("submission", "all").nodes, site.resources_for("train").nodes) == (1, 4)
    assert site.resources_for("submission", "all").partition == "short"
