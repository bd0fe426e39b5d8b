"""One unit at a time on this machine: ranks, inputs that are torn, what the attempts leave behind."""

import json
import shutil
import time

import psutil
import pytest
from safetensors.numpy import load_file

from hpcddm.config.site import Site
from hpcddm.jobs.activity import read_activity
from hpcddm.launch.array_items import make_items, submit_unit, write_specs
from hpcddm.launch.local.launcher import LocalLauncher
from hpcddm.launch.submission import store_experiment
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_relative_paths
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from tests.helpers import DATA_STAGES, hpcddm, python, tiny, write_source

MAKE = """
import sys
from pathlib import Path
from hpcddm.jobs import entry
from hpcddm.jobs.stopping import StopFlag
sys.exit(max(entry._run(Path(spec), StopFlag()) for spec in sys.argv[1:]))
"""
TWO = {"ranks_per_node": 2}


def wait_for(condition, seconds=60):
    deadline = time.time() + seconds
    while not condition():
        assert time.time() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A run in which the data are ready and the monolith was trained by one rank."""
    folder = tmp_path_factory.mktemp("prepared")
    write_source(folder / "images")
    run = RunDir(folder / "run")
    experiment = with_relative_paths(tiny(folder, experts__training__log_every_images=16), run)
    store_experiment(experiment, run)
    units = {unit.key: unit for unit in plan_units(experiment)}
    keys = [key for key, unit in units.items() if unit.stage in DATA_STAGES] + [MONOLITH]
    write_specs(make_items([units[key] for key in keys], experiment, run), Site(name="here", scheduler="local"))
    done = python(MAKE, *map(run.spec, keys), timeout=90)
    assert done.returncode == 0, [read_activity(run, key) for key in keys]
    return run


@pytest.fixture
def run(prepared, tmp_path):
    """A copy of the prepared run, at another depth of the file system."""
    shutil.copytree(prepared.root.parent / "images", tmp_path / "images")
    return RunDir(shutil.copytree(prepared.root, tmp_path / "run"))


def test_two_ranks_learn_what_one_learns(run, prepared):
    (run.unit(MONOLITH) / "manifest.json").unlink()
    shutil.rmtree(run.unit(MONOLITH) / "state", ignore_errors=True)
    done = hpcddm("run-unit", run.root, MONOLITH, "--ranks", 2)
    assert done.exit_code == 0, done.output
    assert manifest.read(run.unit(MONOLITH)).record["world_size"] == 2
    one, two = (json.loads((place.unit(MONOLITH) / "curve.json").read_text()) for place in (prepared, run))
    assert len(one) > 3 and [images for images, _ in one] == [images for images, _ in two]
    assert [loss for _, loss in one] == pytest.approx([loss for _, loss in two], rel=1e-4)
    before, after = (load_file(place.unit(MONOLITH) / "weights.safetensors") for place in (prepared, run))
    assert all(after[name] == pytest.approx(before[name], abs=1e-4) for name in before)
    logs = run.logs(MONOLITH) / "attempt-2"
    assert {path.name for path in logs.glob("rank*.log")} == {"rank0.log", "rank1.log"}


LONGER = {"experts__training__log_every_images": 16, "experts__training__images": 512, "router__training__images": 256}


def test_more_images_continue_a_finished_monolith_as_if_it_had_been_trained_at_once(run, tmp_path):
    experiment = with_relative_paths(tiny(tmp_path, **LONGER), run)
    before = manifest.read(run.unit(MONOLITH))
    unit = next(unit for unit in plan_units(experiment) if unit.key == MONOLITH)

    def made(keep_states, name):
        store_experiment(experiment, run)
        write_specs(make_items([unit], experiment, run), Site(name="here", scheduler="local", keep_states=keep_states))
        done = python(MAKE, run.spec(MONOLITH), timeout=90)
        assert done.returncode == 0, done.stderr
        (tmp_path / name).write_bytes((run.unit(MONOLITH) / "weights.safetensors").read_bytes())
        return json.loads((run.logs(MONOLITH) / name / "first_step.json").read_text())["images"]

    assert made(True, "attempt-2") == before.results["images"]
    after = manifest.read(run.unit(MONOLITH))
    assert after.results["images"] > 2 * before.results["images"]
    curve = (run.unit(MONOLITH) / "curve.json").read_text()
    states = [path.name for path in (run.unit(MONOLITH) / "state").iterdir()]
    assert states == [f"images-{after.results['images']:012d}"]
    shutil.rmtree(run.unit(MONOLITH))
    assert made(False, "attempt-3") == 0 and not (run.unit(MONOLITH) / "state").exists()
    assert (tmp_path / "attempt-2").read_bytes() == (tmp_path / "attempt-3").read_bytes()
    assert (run.unit(MONOLITH) / "curve.json").read_text() == curve


def ranks_of(job):
    """The processes of the ranks, which are started in their order."""
    return sorted(psutil.Process(int(job)).children(), key=lambda one: one.pid)


def test_a_rank_that_dies_before_the_ranks_have_met_takes_its_unit_down_at_once(run):
    (run.unit(MONOLITH) / "manifest.json").unlink()
    experiment, site = stored_experiment(run), Site(name="here", scheduler="local", stages={"train": TWO})
    launcher = LocalLauncher(site, run)
    unit = next(unit for unit in plan_units(experiment) if unit.key == MONOLITH)
    job = submit_unit(unit, experiment, run, launcher)
    try:
        wait_for(lambda: len(ranks_of(job)) == 2)
        _, second = ranks_of(job)
        second.suspend()
        wait_for((run.logs(MONOLITH) / "attempt-2" / "rendezvous.json").exists)
        second.kill()
        wait_for(lambda: not launcher.is_running(job), seconds=15)
    finally:
        launcher.kill(job)
    last = read_activity(run, MONOLITH)
    assert (last.outcome, last.reason) == ("stopped", "SIGTERM, while it waited for the other ranks")


def test_a_truncated_tar_in_a_half_finished_run_is_named_and_made_again_where_the_run_now_lies(run):
    tar = run.unit("shard/train-001") / "images-00001.tar"
    whole = tar.read_bytes()
    tar.write_bytes(whole[: len(whole) // 2])
    done = hpcddm("run-unit", run.root, expert_key(0))
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"{tar} has {len(whole) // 2} bytes instead of {len(whole)}" in done.stderr
    assert not (run.unit(expert_key(0)) / "manifest.json").exists()
    rows = {row["unit"]: row for row in json.loads(hpcddm("status", run.root, "--json").stdout)["units"]}
    assert (rows["shard/train-001"]["state"], rows["catalog/all"]["state"]) == ("damaged", "waiting")
    assert rows[expert_key(0)]["state"] == "failed" and str(tar) in rows[expert_key(0)]["reason"]
    assert hpcddm("run-unit", run.root, "shard/train-001").exit_code == 0
    assert tar.read_bytes() == whole


def test_what_is_complete_is_not_made_again(run):
    before = (run.unit("cluster/all") / "manifest.json").stat().st_mtime_ns
    assert hpcddm("run-unit", run.root, "cluster/all").exit_code == 0
    assert (run.unit("cluster/all") / "manifest.json").stat().st_mtime_ns == before
    assert read_activity(run, "cluster/all").outcome == "already complete"


def test_an_unknown_unit_lists_the_valid_ones(run):
    done = hpcddm("run-unit", run.root, "train/expert-07")
    assert done.exit_code == 2 and "has no unit 'train/expert-07'; valid: shard/train-000, " in done.stderr


CANNOT = {
    (MONOLITH, 3): "3 ranks cannot share the batch of 16 of train/monolith evenly",
    (expert_key(0), 16): "16 ranks cannot share the batch of 8 of train/expert-00 evenly",
    ("evaluators/classifier", 5): "5 ranks cannot share the batch of 16 of evaluators/classifier evenly",
    (
        "cluster/all",
        2,
    ): "cluster/all is the work of one rank; more share autoencoder, train, router, distill, evaluators",
}


@pytest.mark.parametrize("key, ranks", CANNOT)
def test_ranks_that_cannot_work_are_refused_before_anything_starts(run, key, ranks):
    before = sorted(run.root.rglob("*"))
    done = hpcddm("run-unit", run.root, key, "--ranks", ranks)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"error: --ranks {ranks}: {CANNOT[key, ranks]}\n")
    assert sorted(run.root.rglob("*")) == before


def test_no_file_of_a_run_that_travels_names_a_place_or_a_person(run, prepared):
    for path in [run.experiment, *run.root.glob("*/*/manifest.json"), *run.root.glob("cluster/manifest.json")]:
        assert str(prepared.root.parent) not in path.read_text() and "/tmp" not in path.read_text(), path
