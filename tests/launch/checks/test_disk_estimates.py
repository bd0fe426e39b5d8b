"""What is planned to be written, against what a real run and a real training wrote."""

import json
import subprocess
import sys

import pytest

from hpcddm.launch.checks import disk_estimates
from hpcddm.launch.load_site import load_site
from hpcddm.pipeline import disk_sizes
from hpcddm.pipeline.stage import DiskSpace
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import MONOLITH
from tests.helpers import tiny, write_source

FACTOR = 1.3
"""An estimate may be as much above the real bytes: pictures compress, and tars are planned as if they did not."""
SMALL_BYTES = 250_000
"""Bytes of units of which most is allowed for in full: manifest, log, and a thousand centroids."""

STATE = """
import json, os, sys, tempfile
from pathlib import Path
import torch.distributed as dist
from hpcddm.config.training import Training
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.run_dir import RunDir
from hpcddm.jobs.job_environment import Ranks
from hpcddm.models import build_denoiser
from hpcddm.training.engine import Engine
import torch
os.environ["LOCAL_RANK"] = "0"
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
experiment = stored_experiment(RunDir(Path(sys.argv[1])))
found = {}
for precision in ("fp32", "bf16"):
    training = experiment.experts.training.model_copy(update={"precision": precision})
    network = build_denoiser.build(experiment, experiment.expert_config())
    engine = Engine(network, training, Ranks(0, 0, 1, 1, "me"), torch.device("cpu"))
    # The moments come with the first step.
    inputs = torch.zeros(4, 1, 28, 28), torch.zeros(4), torch.zeros(4, dtype=torch.long)
    engine.backward(engine.model(*inputs).square().mean())
    engine.step(training.batch)
    folder = Path(tempfile.mkdtemp())
    engine.host_copy().write(folder)
    found[precision] = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
print("RESULT", json.dumps(found), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def planned(finished, two_ranks):
    """The run, its units, and a function that says what a unit will write."""
    run = RunDir(finished)
    experiment, site = stored_experiment(run), load_site(str(two_ranks))
    counts = disk_estimates.image_counts(experiment, run)
    return run, plan_units(experiment), lambda unit: disk_estimates.estimate_unit(unit, experiment, site, counts)


def written(run, key):
    """Real bytes, and files with folders, of a unit and its logs."""
    paths = [path for root in (run.unit(key), run.logs(key)) for path in [root, *root.rglob("*")]]
    return sum(path.stat().st_size for path in paths if path.is_file()), len(paths)


def test_the_estimated_bytes_of_a_whole_run_are_at_least_the_real_ones_and_little_more(planned):
    run, units, estimate = planned
    real = sum(written(run, unit.key)[0] for unit in units)
    assert real <= sum((estimate(unit) for unit in units), DiskSpace()).kept <= FACTOR * real


def test_no_unit_writes_more_than_planned_or_half_of_it(planned):
    run, units, estimate = planned
    for unit in units:
        size, files = written(run, unit.key)
        assert size <= estimate(unit).kept <= max(2 * size, SMALL_BYTES), unit.key
        assert files <= estimate(unit).files, unit.key


def test_all_files_of_a_run_fit_into_the_planned_inodes(planned):
    run, units, estimate = planned
    # The code that jobs run is copied once, before there is anything to plan.
    real = len([path for path in run.root.rglob("*") if run.root / "code" not in path.parents])
    assert real <= sum((estimate(unit) for unit in units), DiskSpace()).files <= 3 * real


def test_a_training_state_has_the_planned_size(finished):
    done = subprocess.run([sys.executable, "-c", STATE, str(finished)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.rsplit("RESULT ", 1)[1])
    experiment = stored_experiment(RunDir(finished))
    parameters = experiment.experts.model.parameters(experiment.data)
    for precision, sizes in found.items():
        planned = disk_sizes.state_bytes(parameters, experiment.experts.training)
        # The names of all tensors take as much room in a large network.
        assert planned <= sum(sizes) <= planned + 100_000 and len(sizes) == 1, precision


def test_images_are_counted_alike_from_the_source_and_from_the_shards(finished, tmp_path):
    experiment = stored_experiment(RunDir(finished))
    counts = disk_estimates.image_counts(experiment, RunDir(finished))
    source = experiment.data.source
    absolute = source.model_copy(update={"folder": str((finished / source.folder).resolve())})
    elsewhere = experiment.model_copy(update={"data": experiment.data.model_copy(update={"source": absolute})})
    assert (
        counts == disk_estimates.image_counts(elsewhere, RunDir(tmp_path / "none")) == {"train": 14000, "heldout": 3000}
    )


def test_what_is_there_already_need_not_be_free(finished, two_ranks):
    run, site = RunDir(finished), load_site(str(two_ranks))
    experiment = stored_experiment(run)
    counts, units = disk_estimates.image_counts(experiment, run), plan_units(experiment)
    fresh = disk_estimates.still_needed(units, experiment, site, RunDir(finished / "none"), counts)
    again = disk_estimates.still_needed(units, experiment, site, run, counts)
    assert 0 < again.kept < fresh.kept and again.files < fresh.files


def test_a_site_that_keeps_no_states_needs_less_once_all_is_trained(finished, two_ranks):
    run, site = RunDir(finished), load_site(str(two_ranks))
    experiment = stored_experiment(run)
    counts, unit = (
        disk_estimates.image_counts(experiment, run),
        next(unit for unit in plan_units(experiment) if unit.key == MONOLITH),
    )
    keeping, dropping = (
        disk_estimates.estimate_unit(unit, experiment, site.model_copy(update={"keep_states": keep}), counts)
        for keep in (True, False)
    )
    state = disk_sizes.state_bytes(experiment.experts.model.parameters(experiment.data), experiment.experts.training)
    assert keeping.kept - dropping.kept == dropping.working - keeping.working == state


def test_states_are_planned_for_the_units_that_may_train_together(tmp_path):
    write_source(tmp_path / "images")
    experiment, run = tiny(tmp_path), RunDir(tmp_path / "run")
    units = [unit for unit in plan_units(experiment) if unit.stage == "train"]
    counts = disk_estimates.image_counts(experiment, run)
    site = load_site("slurm")

    def needed(parallel):
        few = site.model_copy(update={"max_parallel": parallel})
        return disk_estimates.still_needed(units, experiment, few, run, counts).kept

    working = disk_estimates.estimate_unit(units[0], experiment, site, counts).working
    assert needed(2) - needed(1) == working == needed(3) - needed(2)
    assert needed(4) == needed(3) and units[0].key == MONOLITH


def test_more_attempts_and_ranks_write_more_files(tmp_path):
    write_source(tmp_path / "images")
    experiment, run = tiny(tmp_path), RunDir(tmp_path / "run")
    counts, site = disk_estimates.image_counts(experiment, run), load_site("slurm")
    unit = next(unit for unit in plan_units(experiment) if unit.stage == "train")
    one, two = (disk_estimates.estimate_unit(unit, experiment, site, counts, attempts) for attempts in (1, 2))
    assert two.files - one.files == disk_estimates.ATTEMPT_FILES + 2 * disk_estimates.RANK_FILES and two.kept > one.kept


def test_the_free_room_of_a_folder_that_is_not_there_yet_is_that_of_its_parent(tmp_path):
    parent, child = disk_estimates.free_space(tmp_path), disk_estimates.free_space(tmp_path / "a" / "b")
    assert abs(parent[0] - child[0]) < 1e9 and child[0] > 0
