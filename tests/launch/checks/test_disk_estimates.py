"""What is planned to be written, against what a real run and a real training wrote."""

import json
import subprocess
import sys
from types import SimpleNamespace

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
    """The run, its experiment, site, numbers of images and units, and a function that says what a unit will write."""
    run = RunDir(finished)
    experiment, site = stored_experiment(run), load_site(str(two_ranks))
    counts = disk_estimates.image_counts(experiment, run)

    def estimate(unit, **changes):
        return disk_estimates.estimate_unit(unit, experiment, site.model_copy(update=changes), counts)

    return SimpleNamespace(
        run=run, experiment=experiment, site=site, counts=counts, units=plan_units(experiment), estimate=estimate
    )


def written(run, key):
    """Real bytes, and files with folders, of a unit and its logs."""
    paths = [path for root in (run.unit(key), run.logs(key)) for path in [root, *root.rglob("*")]]
    return sum(path.stat().st_size for path in paths if path.is_file()), len(paths)


def test_the_estimate_of_a_whole_run_is_at_least_its_real_bytes_and_files_and_little_more(planned):
    sum_of_all = sum(map(planned.estimate, planned.units), DiskSpace())
    real = sum(written(planned.run, unit.key)[0] for unit in planned.units)
    assert real <= sum_of_all.kept <= FACTOR * real
    # The code that jobs run is copied once, before there is anything to plan.
    root = planned.run.root
    files = len([path for path in root.rglob("*") if root / "code" not in path.parents])
    assert files <= sum_of_all.files <= 3 * files


def test_no_unit_writes_more_than_planned_or_half_of_it(planned):
    for unit in planned.units:
        size, files = written(planned.run, unit.key)
        assert size <= planned.estimate(unit).kept <= max(2 * size, SMALL_BYTES), unit.key
        assert files <= planned.estimate(unit).files, unit.key


def test_a_training_state_has_the_planned_size(planned):
    done = subprocess.run([sys.executable, "-c", STATE, planned.run.root], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found, experts = json.loads(done.stdout.rsplit("RESULT ", 1)[1]), planned.experiment.experts
    size = disk_sizes.state_bytes(experts.model.parameters(planned.experiment.data), experts.training)
    for precision, sizes in found.items():
        # The names of all tensors take as much room in a large network.
        assert size <= sum(sizes) <= size + 100_000 and len(sizes) == 1, precision


def test_images_are_counted_alike_from_the_source_and_from_the_shards(planned, tmp_path):
    data, root = planned.experiment.data, planned.run.root
    source = data.source.model_copy(update={"folder": str((root / data.source.folder).resolve())})
    elsewhere = planned.experiment.model_copy(update={"data": data.model_copy(update={"source": source})})
    assert planned.counts == {"train": 14000, "heldout": 3000}
    assert disk_estimates.image_counts(elsewhere, RunDir(tmp_path / "none")) == planned.counts


def test_what_is_there_already_need_not_be_free(planned):
    fresh, again = (
        disk_estimates.still_needed(planned.units, planned.experiment, planned.site, run, planned.counts)
        for run in (RunDir(planned.run.root / "none"), planned.run)
    )
    assert 0 < again.kept < fresh.kept and again.files < fresh.files


def test_states_are_planned_for_units_that_may_train_together_and_files_for_attempts_and_ranks(tmp_path):
    write_source(tmp_path / "images")
    experiment, run, site = tiny(tmp_path), RunDir(tmp_path / "run"), load_site("slurm")
    units = [unit for unit in plan_units(experiment) if unit.stage == "train"]
    counts = disk_estimates.image_counts(experiment, run)

    def needed(parallel):
        few = site.model_copy(update={"max_parallel": parallel})
        return disk_estimates.still_needed(units, experiment, few, run, counts).kept

    one, two = (disk_estimates.estimate_unit(units[0], experiment, site, counts, attempts) for attempts in (1, 2))
    assert needed(2) - needed(1) == one.working == needed(3) - needed(2)
    assert needed(4) == needed(3) and units[0].key == MONOLITH
    assert two.files - one.files == disk_estimates.ATTEMPT_FILES + 2 * disk_estimates.RANK_FILES and two.kept > one.kept
