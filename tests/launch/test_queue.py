"""A run's arrays: what they hold, what they wait for, and what is left when the cluster takes less."""

from contextlib import nullcontext

import pytest

from hpcddm.config.site import Site
from hpcddm.files import checked_reads
from hpcddm.jobs.spec import read_element_map, read_spec
from hpcddm.launch.array_items import group_into_arrays, make_items
from hpcddm.launch.base import Job, Limits, QueueFull
from hpcddm.launch.queue import plan_arrays, render_planned, submit_planned
from hpcddm.launch.slurm.launcher import create
from hpcddm.launch.submission import decide_units
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from tests.helpers import JOINED, LATENT_SPACE, tiny
from tests.launch.queues import Queue, submit_all


@pytest.fixture
def run(tmp_path):
    """An empty run."""
    run = RunDir(tmp_path / "run")
    run.root.mkdir()
    return run


def all_of(experiment, run):
    return make_items(plan_units(experiment), experiment, run)


def planned(experiment, run, queue, chosen=lambda item: True):
    """The arrays of what is chosen, and why there are no more."""
    return plan_arrays([item for item in all_of(experiment, run) if chosen(item)], run, queue)


def everything(experiment, run, queue):
    return submit_all(experiment, run, queue, decide_units(experiment, run, queue))


def shapes(experiment, run, **site):
    """The names in each array."""
    groups = group_into_arrays(all_of(experiment, run), Site(name="north", scheduler="slurm", **site))
    return [[item.name for item in group] for group in groups]


@pytest.mark.parametrize("experts", [2, 8])
def test_the_experts_are_one_array_with_one_element_each(run, tmp_path, experts):
    queue = Queue(run, stages={"train": {"nodes": 2}, "train/monolith": {"minutes": 600}})
    submitted = everything(tiny(tmp_path, cluster__experts=experts), run, queue)
    (array,) = [array for array in queue.submitted if "train/expert-00" in array.keys]
    assert array.keys == [expert_key(index) for index in range(experts)] and array.resources.nodes == 2
    assert array.throttle == experts
    assert [read_spec(path)[0].key for path in array.specs] == array.keys
    assert [one.job for one in Journal(run.journal).submissions()] == [one.job for one in submitted]


OWN = [("nodes", 2), ("setup", ["module load b"]), ("container", ["box"]), ("exclude", "n3")]


@pytest.mark.parametrize("key, value", OWN)
def test_a_unit_with_a_shape_setup_or_container_of_its_own_is_an_array_of_its_own(run, tmp_path, key, value):
    found = shapes(tiny(tmp_path), run, setup=["module load a"], stages={"train/expert-01": {key: value}})
    assert ["train/expert-00"] in found and ["train/expert-01"] in found and [MONOLITH] in found


def test_an_expert_that_joins_shares_the_array_of_the_others(run, tmp_path):
    found = shapes(tiny(tmp_path, experts__extra=[JOINED]), run)
    assert ["expert_lists/all", "expert_lists/hats"] in found
    assert [expert_key(0), expert_key(1), "train/hats"] in found


CAPTIONED = {"data__condition": {"name": "text", "encoder": {"name": "words"}, "cached": True}}
INSIDE = CAPTIONED | {
    "data__space": LATENT_SPACE,
    "concepts": {"vocabulary": {"name": "captions"}, "tagger": {"name": "lit", "image": {"name": "pixels"}}},
}
"""Changes by which several stages have units that read others of the same stage."""


@pytest.mark.parametrize("changes", [{}, INSIDE], ids=["plain", "inside"])
def test_every_array_waits_for_what_its_units_read(run, tmp_path, changes):
    experiment = tiny(tmp_path, **changes)
    submitted = everything(experiment, run, Queue(run))
    job_of = {key: one.job for one in submitted for key in one.keys}
    for unit in plan_units(experiment):
        (array,) = [one for one in submitted if unit.key in one.keys]
        assert {job_of[key] for key in unit.inputs} <= set(array.after)
        assert all(int(job) < int(array.job) for job in array.after)


def test_no_array_reads_a_later_one_whatever_runs_lack(tmp_path):
    experiment, site = tiny(tmp_path, **INSIDE), Site(name="north", scheduler="slurm")
    units, runs = plan_units(experiment), [RunDir(tmp_path / name) for name in ("one", "other")]
    for lacking in ({"latents/scale", "concept_tags/heldout-000", "report/all"}, {"encode_captions/001"}, set()):
        some = [unit for unit in units if unit.key in lacking]
        items = [*make_items(some, experiment, runs[0], "one"), *make_items(units, experiment, runs[1], "other")]
        places = {item.name: place for place, group in enumerate(group_into_arrays(items, site)) for item in group}
        assert len(places) == len(items)
        assert all(places[name] < places[item.name] for item in items for name in item.needs if name in places)


def test_the_map_leads_every_element_to_its_spec_wherever_the_run_lies(run, tmp_path):
    everything(tiny(tmp_path), run, Queue(run))
    moved = RunDir(run.root.rename(tmp_path / "moved"))
    for one in Journal(moved.journal).submissions():
        specs = [read_spec(path)[0] for path in read_element_map(moved.jobs / f"{one.uuid}.json")]
        assert [spec.key for spec in specs] == one.units
        assert "/" not in checked_reads.read_json(moved.jobs / f"{one.uuid}.json")["specs"][0].split("../specs/")[0]


def test_a_long_array_is_cut_and_its_chunks_share_the_throttle(run, tmp_path):
    queue = Queue(run, limits=Limits(max_array=3), max_parallel=2)
    submitted = everything(tiny(tmp_path, cluster__experts=8), run, queue)
    pieces = [array for array in queue.submitted if "train/expert" in array.keys[0]]
    assert [key for array in pieces for key in array.keys] == [expert_key(index) for index in range(8)]
    assert [len(array.keys) for array in pieces] == [3, 3, 2] and [array.throttle for array in pieces] == [1, 1, 1]
    jobs = [one.job for one in submitted if "train/expert" in one.keys[0]]
    assert jobs[0] in pieces[2].after and not {jobs[0], jobs[1]} & {*pieces[0].after, *pieces[1].after}
    (draw,) = [one for one in submitted if one.keys[0].startswith("draw")]
    assert set(jobs) <= set(draw.after)
    tokens = [one.uuid for one in Journal(run.journal).submissions()]
    assert len(tokens) == len(set(tokens)) == len(submitted)


@pytest.mark.parametrize("room", range(15))
def test_what_fits_is_submitted_and_needs_nothing_of_what_is_left(run, tmp_path, room):
    experiment = tiny(tmp_path)
    arrays, reason = planned(experiment, run, Queue(run, limits=Limits(free_jobs=room, reason="ten are enough")))
    taken = [item.name for array in arrays for item in array.items]
    assert len(taken) == min(room, len(plan_units(experiment))) and reason == "ten are enough"
    for unit in plan_units(experiment):
        assert unit.key not in taken or set(unit.inputs) <= set(taken)


@pytest.mark.parametrize("room", range(15))
def test_a_queue_that_turns_out_to_be_full_is_filled_and_nothing_refused_leaves_a_trace(run, tmp_path, room):
    """As under a limit that cannot be read; an array that is longer than the limit goes in by pieces."""
    experiment, queue = tiny(tmp_path, cluster__experts=4), Queue(run, room=room)
    with pytest.raises(QueueFull):
        list(submit_planned(planned(experiment, run, queue)[0], run, queue, {}))
    known = Journal(run.journal).submissions()
    assert [one.units for one in known] == [array.keys for array in queue.submitted]
    taken = [key for one in known for key in one.units]
    assert len(taken) == room
    # The rest goes in later, behind what is in the queue.
    later = Queue(run, alive=taken)
    everything(experiment, run, later)
    in_the_end = taken + [key for array in later.submitted for key in array.keys]
    assert sorted(in_the_end) == sorted(unit.key for unit in plan_units(experiment))


def at_the_same_time(arrays, jobs):
    """Most elements of these arrays that may run at once, where every one starts as soon as it may."""
    ready = [place for place, array in enumerate(arrays) if not set(array.after) & set(jobs)]
    if not ready:
        return 0
    rest = [place for place in range(len(arrays)) if place not in ready]
    later = at_the_same_time([arrays[place] for place in rest], [jobs[place] for place in rest])
    return max(sum(arrays[place].throttle for place in ready), later)


@pytest.mark.parametrize("room", range(1, 9))
@pytest.mark.parametrize("max_parallel", [1, 2, 3, 4, 8])
def test_an_array_that_goes_in_by_pieces_keeps_its_throttle(run, tmp_path, room, max_parallel):
    queue = Queue(run, room=room, max_parallel=max_parallel)
    arrays, _ = planned(tiny(tmp_path, cluster__experts=8), run, queue, lambda item: "train/expert" in item.name)
    with pytest.raises(QueueFull) if room < 8 else nullcontext():
        list(submit_planned(arrays, run, queue, {}))
    jobs = [one.job for one in Journal(run.journal).submissions()]
    assert sum(len(array.keys) for array in queue.submitted) == room
    assert 1 <= at_the_same_time(queue.submitted, jobs) <= max_parallel
    assert all(array.throttle <= len(array.keys) for array in queue.submitted)


def test_what_reads_an_array_in_pieces_waits_for_all_of_them(run, tmp_path):
    class Narrow(Queue):
        """Takes arrays of three."""

        def submit(self, array, token, script):
            self.room = 3
            return super().submit(array, token, script)

    submitted = everything(tiny(tmp_path, cluster__experts=8), run, Narrow(run))
    pieces = [one for one in submitted if "train/expert" in one.keys[0]]
    assert [len(one.keys) for one in pieces] == [2, 2, 2, 2]
    (draw,) = [one for one in submitted if one.keys[0].startswith("draw")]
    assert {one.job for one in pieces} <= set(draw.after)
    assert len({one.script for one in submitted}) == len(submitted)


def test_what_waits_in_the_queue_already_is_waited_for(run, tmp_path):
    queue = Queue(run)
    arrays, _ = planned(tiny(tmp_path), run, queue, lambda item: item.unit.stage == "report")
    (report,) = submit_planned(arrays, run, queue, {"train/expert-01": Job(JobId("55_1"), "running")})
    assert report.after == ["55"]


def test_a_dry_run_writes_the_scripts_that_a_submission_would_and_none_over_another(run, tmp_path):
    experiment, launcher = tiny(tmp_path), create(Site(name="north", scheduler="slurm", max_parallel=2), run)
    launcher.limits = lambda wanted, cluster: Limits(max_array=1)
    Journal(run.journal).record_intent("slurm", "north", ["x"])
    rendered = list(render_planned(planned(experiment, run, launcher)[0], launcher, {}))
    names = sorted(path.name for path in run.scripts.glob("*.sbatch"))
    assert names == sorted(script for script, _ in rendered) and names[0].startswith("0002-")
    assert len(set(names)) == len(plan_units(experiment))
    assert "#SBATCH --array=0-0%1\n" in (run.scripts / names[0]).read_text()


def test_a_dry_run_names_the_scripts_and_jobs_for_which_an_array_waits_as_a_submission_does(run, tmp_path):
    launcher, queue = create(Site(name="north", scheduler="slurm", **BOTH), run), Queue(run, **BOTH)
    arrays, _ = planned(tiny(tmp_path), run, queue, lambda item: item.unit.stage in ("train", "report"))
    active = {"draw/monolith": Job(JobId("55_1@north"), "running"), "router/all": Job(JobId("7@south"), "running")}
    scripts = dict(render_planned(arrays, launcher, active))
    dry = {key: array.waits_for for array in scripts.values() for key in array.keys}
    list(submit_planned(arrays, run, queue, active))
    real = {key: array.waits_for for array in queue.submitted for key in array.keys}
    assert real == dry
    scripts = dict(render_planned(arrays, launcher, active))
    north = [script for script, array in scripts.items() if "train/expert-00" in array.keys]
    assert set(north) < set(real["report/all"]), "an array of the other cluster is not waited for"
    text = (run.scripts / next(script for script in scripts if "report" in script)).read_text()
    assert f"# Waits for  {', '.join(real['report/all'])}, by --dependency=afterany\n" in text


BOTH = {"cluster": "north", "stages": {"train/expert-01": {"cluster": "south"}}}


def test_no_dependency_crosses_clusters_and_what_waits_for_another_one_looks_later(run, tmp_path):
    submitted = {key: one for one in everything(tiny(tmp_path), run, Queue(run, **BOTH)) for key in one.keys}
    assert submitted["train/expert-00"].job.cluster == "north" and submitted["train/expert-01"].job.cluster == "south"
    assert {after.cluster for one in submitted.values() for after in one.after} == {"north"}
    assert submitted["train/expert-00"].after and submitted["train/expert-00"].begin_seconds == 0
    assert not submitted["train/expert-01"].after and submitted["train/expert-01"].begin_seconds == 60
    assert {one.cluster for one in Journal(run.journal).submissions()} == {"north", "south"}


def test_a_cluster_without_room_leaves_out_its_units_and_what_reads_them(run, tmp_path):
    queue = Queue(run, **BOTH)
    queue.limits = lambda wanted, cluster: Limits(free_jobs=0 if cluster == "south" else None, reason="it is full")
    keys = {item.unit.key for array in planned(tiny(tmp_path), run, queue)[0] for item in array.items}
    assert "train/expert-00" in keys and keys.isdisjoint({"train/expert-01", "report/all"})
