"""Values against those of other implementations, which are stored; a test marked long makes them again."""

import json
import os
import subprocess
import sys

import pytest

from hpcddm.evaluation.metrics import all_metrics
from tests.evaluation.golden import make_peers
from tests.evaluation.metrics.sets import inputs_of
from tests.helpers import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "evaluation" / "golden" / "peers.json"
SCRIPT = GOLDEN.with_name("make_peers.py")
STORED = json.loads(GOLDEN.read_text())
PACKAGES = ["pytorch-fid==0.3.0", "clean-fid==0.1.35", "torch-fidelity==0.4.0", "prdc==0.2", "torchvision"]
IMPORTED = ["requests", "urllib3", "idna", "scikit-learn", "joblib", "threadpoolctl"]
SINGLE = ("precision torch-fidelity", "recall torch-fidelity")
METRICS = {metric.key: metric for metric in all_metrics()}


@pytest.mark.parametrize("name", STORED["values"])
def test_equals_its_peer(name):
    samples, real = make_peers.sets()
    inputs = inputs_of(samples, real)
    if name.startswith("inception_score"):
        object.__setattr__(inputs.samples, "logits", samples)
    value, expected = METRICS[name.split()[0]].compute(inputs), STORED["values"][name]
    # torch-fidelity averages precision and recall in float32.
    assert value == pytest.approx(expected, rel=1e-7 if name in SINGLE else 1e-8)
    assert abs(expected) > 1e-3


@pytest.mark.long
def test_the_peers_still_say_what_is_stored(tmp_path):
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "packages"]
    subprocess.run([*install, "--constraint", REPOSITORY / "constraints.txt", *PACKAGES], check=True, timeout=600)
    subprocess.run([*install, *IMPORTED], check=True, timeout=600)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "packages")}
    subprocess.run([sys.executable, SCRIPT, tmp_path / "peers.json"], env=environment, check=True, timeout=600)
    made = json.loads((tmp_path / "peers.json").read_text())
    assert made["values"] == pytest.approx(STORED["values"], rel=1e-9, abs=1e-12)
    assert STORED["versions"]["prdc"] == "0.2" and STORED["versions"]["clean-fid"] == "0.1.35"
