"""The pipeline on a real Slurm: arrays of two-node jobs, dependencies, two clusters that share one run's work."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.helpers import DATA_STAGES
from tests.whole_runs import TINY, hpcddm

pytestmark = pytest.mark.slurm
EXPERTS = [f"expert-{index:02d}" for index in range(4)]


def submit(run: Path, conf: str, site: str, *arguments: str) -> str:
    done = hpcddm("submit", "quickstart", "--site", site, "--run-dir", run, *TINY, *arguments, SLURM_CONF=conf)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait(run: Path, conf: str, until: set[str], minutes: float = 6) -> dict[str, dict]:
    """Wait until nothing is pending or running and return the units by key; their states must be `until`."""
    deadline = time.time() + 60 * minutes
    while time.time() < deadline:
        answer = hpcddm("status", run, "--json", SLURM_CONF=conf)
        units = {row["unit"]: row for row in json.loads(answer.stdout)["units"]}
        states = {row["state"] for row in units.values()}
        if states <= until:
            return units
        assert not states & {"failed", "unknown"}, answer.stdout
        # To ask costs the jobs half a second of a core.
        time.sleep(3)
    raise AssertionError(subprocess.run(["squeue"], env=os.environ | {"SLURM_CONF": conf}, capture_output=True).stdout)


def weights(run: Path, unit: str) -> bytes:
    return (run / "train" / unit / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def on_slurm(home, tmp_path_factory) -> Path:
    """The tiny experiment, run on the cluster home; its scripts were compared with a dry run's on the way."""
    run = tmp_path_factory.mktemp("slurm") / "run"
    assert "would submit" in submit(run, home, "testbed-home", "--dry-run")
    dry = {path.name: path.read_bytes() for path in (run / "scripts").iterdir()}
    said = submit(run, home, "testbed-home")
    assert dry == {path.name: path.read_bytes() for path in (run / "scripts").iterdir()}
    assert "_[0-3]  train/expert-00 ... train/expert-03  after" in said
    assert "nothing new to submit" in submit(run, home, "testbed-home"), "submitted twice"
    wait(run, home, {"complete"})
    return run


def test_experts_are_one_array_of_two_node_jobs(on_slurm, home):
    journal = [json.loads(line) for line in (on_slurm / "journal.jsonl").read_text().splitlines()]
    (intent,) = (event for event in journal if event.get("units", [""])[0] == "train/expert-00")
    (job,) = (event["job"] for event in journal if event["uuid"] == intent["uuid"] and "job" in event)
    assert intent["units"] == [f"train/{name}" for name in EXPERTS]
    command = ["sacct", "-X", "-n", "-P", "-j", job, "-o", "JobID,NNodes,State"]
    rows = subprocess.run(command, env=os.environ | {"SLURM_CONF": home}, capture_output=True, text=True, check=True)
    assert sorted(rows.stdout.split()) == [f"{job}_{index}|2|COMPLETED" for index in range(4)]
    for name in EXPERTS:
        attempt = on_slurm / "logs/train" / name / "attempt-1"
        assert {path.name for path in attempt.glob("rank*.log")} == {"rank0.log", "rank1.log"}
        assert f"-{intent['uuid']}-{job}_" in json.loads((attempt / "owner.json").read_text())["owner"]


def test_weights_are_bit_identical_to_those_of_an_embedded_run_of_two_ranks(on_slurm, finished):
    for name in ("monolith", *EXPERTS):
        assert weights(on_slurm, name) == weights(finished, name), name


def test_metrics_are_those_of_the_embedded_run(on_slurm, finished):
    first, second = ((run / "report/metrics.json").read_bytes() for run in (on_slurm, finished))
    assert first == second


def test_again_submits_nothing(on_slurm, home):
    assert "nothing to submit" in submit(on_slurm, home, "testbed-home")


def test_two_sites_train_their_own_experts_and_the_copied_folders_complete_the_run(home, partner, finished, tmp_path):
    sites = "experts.sites=[testbed-home,testbed-home,testbed-partner,testbed-partner]"
    here, there = tmp_path / "home", tmp_path / "partner"
    # The stages before training are bit for bit the same everywhere; one test of that is enough.
    for run, made in ((here, (*DATA_STAGES, "evaluators", "train/monolith")), (there, DATA_STAGES)):
        for unit in made:
            shutil.copytree(finished / unit, run / unit)
    submit(there, partner, "testbed-partner", sites, "site=testbed-home")
    said = submit(here, home, "testbed-home", sites, "site=testbed-home")
    assert "elsewhere (testbed-partner): train/expert-02, train/expert-03" in said
    states = wait(here, home, {"complete", "elsewhere", "missing", "waiting"})
    assert {states[f"train/{name}"]["state"] for name in EXPERTS[2:]} == {"elsewhere"}
    assert states["train/expert-00"]["state"] == states["router/all"]["state"] == "complete"
    wait(there, partner, {"complete", "elsewhere"})
    assert not (there / "train/expert-00").exists() and not (here / "train/expert-02").exists()
    for name in EXPERTS[2:]:
        subprocess.run(["cp", "-r", there / "train" / name, here / "train"], check=True)
    submit(here, home, "testbed-home", sites, "site=testbed-home")
    wait(here, home, {"complete"})
    assert (here / "report/metrics.json").read_bytes() == (finished / "report/metrics.json").read_bytes()


def test_a_shape_that_sbatch_refuses_is_refused_before_anything_is_written(home, tmp_path):
    site = tmp_path / "site.yaml"
    site.write_text("{name: wrong, scheduler: slurm, partition: nope}")
    done = hpcddm("submit", "quickstart", "--site", site, "--run-dir", tmp_path / "run", *TINY, SLURM_CONF=home)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "sbatch would refuse" in done.stderr and "nvalid partition" in done.stderr
    assert not (tmp_path / "run").exists()
