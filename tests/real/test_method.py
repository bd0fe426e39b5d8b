"""Mixed experts, a router from their samples and a student, through the whole pipeline on real images."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.helpers import DATA_STAGES
from tests.whole_runs import TINY, hpcddm

EPSILON = "{name: epsilon, schedule: {name: linear_beta_1000}}"
SMALLER = "{name: dit, width: 24, depth: 1, heads: 2, patch: 4, modulation: single, condition: none}"
MIXED = [
    f"experts.overrides=[{{clusters: [0], objective: {EPSILON}, precision: bf16}},"
    f" {{clusters: [3], model: {SMALLER}}}]",
    "distill={teacher: router, share: 0.5}",
    "router.samples={images: 100, steps: 3}",
    "router.temperature=by_level",
    "evaluate.strategies=[full, per-trajectory, sample-2, full-until-0.5-then-top-1]",
    "evaluate.conversion={name: snr_matched, max_time: 0.95}",
    "evaluate.solver={name: heun}",
    "evaluate.guidance=1.5",
    "evaluate.guidance_interval=[0.1, 0.9]",
    "experts.training.checkpoint_minutes=0.001",
    "evaluate.images=200",
]


@pytest.fixture(scope="module")
def mixed(finished, tmp_path_factory):
    """A run of its own from the training on; what was made before any expert is the finished run's."""
    run = tmp_path_factory.mktemp("mixed") / "run"
    for stage in (*DATA_STAGES, "evaluators"):
        shutil.copytree(finished / stage, run / stage)
    done = hpcddm("submit", "quickstart", "--site", "embedded", "--run-dir", run, *TINY, *MIXED, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return run


def results(run, key):
    return json.loads((run / key / "manifest.json").read_text())["results"]


def test_every_arm_is_measured_and_the_bill_is_of_all_networks(mixed):
    metrics = json.loads((mixed / "report/metrics.json").read_text())
    labels = ["monolith", "student", "full", "per-trajectory", "sample-2", "full-until-0.5-then-top-1"]
    assert list(metrics["arms"]) == labels
    experts = [results(mixed, f"train/expert-0{expert}")["train_flops"] for expert in range(4)]
    assert experts[3] < experts[0] / 3
    router = results(mixed, "router")
    assert router["sampling_flops"] > 0
    arms = {label: arm["train_flops"] for label, arm in metrics["arms"].items()}
    assert arms["full"] == arms["per-trajectory"] == sum(experts) + router["train_flops"]
    assert arms["student"] == results(mixed, "distill/student")["train_flops"]
    # The monolith's images are fixed before anybody knows how many samples each expert, large or small, will draw.
    assert arms["monolith"] == pytest.approx(arms["full"], rel=0.02)
    assert all(0 <= arm["recall"] <= 1 and arm["diversity"] > 0 for arm in metrics["arms"].values())
    assert len(metrics["diagnostics"]["full"]["entropy"]) == 4


def test_the_page_names_every_objective(mixed):
    page = (mixed / "report/index.html").read_text()
    assert "epsilon" in page and "flow_matching" in page and "linear_beta_1000" in page


def test_a_student_that_was_killed_goes_on_where_it_was_to_the_same_bits(mixed, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(mixed, run, symlinks=True)
    expected = (run / "distill/student/weights.safetensors").read_bytes()
    shutil.rmtree(run / "distill/student")
    shutil.rmtree(run / "logs/distill")
    command = [sys.executable, "-m", "hpcddm.cli", "run-unit", str(run), "distill/student"]
    first = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    state = run / "distill/student/state"
    deadline = time.time() + 120
    while not (state.is_dir() and [folder for folder in state.iterdir() if not folder.name.startswith(".")]):
        assert first.poll() is None and time.time() < deadline, "no state was saved"
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not (run / "distill/student/manifest.json").exists()
    again = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    log = hpcddm("logs", run, "distill/student").stdout
    assert "distill/student: 0 of" not in log and "images seen" in log
    assert (run / "distill/student/weights.safetensors").read_bytes() == expected
