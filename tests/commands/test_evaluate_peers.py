"""`hpcddm evaluate` beside another program, end to end: the same PNGs and weights give the same figures."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

from tests.commands.golden.make_evaluated import STORED, write_sets
from tests.encoders.inception_weights import FILE, random_state
from tests.helpers import REPOSITORY, hpcddm

PACKAGES = ["torch-fidelity==0.4.0", "tqdm", "torchvision"]


def test_figures_equal_those_of_torch_fidelity(tmp_path):
    samples, real = write_sets(tmp_path)
    (tmp_path / "weights").mkdir()
    torch.save(random_state(), tmp_path / "weights" / FILE)
    extractor = f"{{name: inception_2015, weights: {{folder: {tmp_path}/weights}}}}"
    done = hpcddm("evaluate", samples, "--against", real, "--extractor", extractor, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["arms"][str(samples)]
    for name, expected in json.loads(STORED.read_text()).items():
        # torch-fidelity computes the kernel distance in float32.
        assert found[f"{name}@inception-2015"] == pytest.approx(expected, rel=1e-4), name
        assert abs(expected) > 1


@pytest.mark.long
def test_torch_fidelity_still_says_what_is_stored(tmp_path):
    packages = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages]
    subprocess.run([*install, "--constraint", REPOSITORY / "constraints.txt", *PACKAGES], check=True, timeout=600)
    # It installs its tests under the name of ours.
    shutil.rmtree(packages / "tests")
    command = [sys.executable, "-m", "tests.commands.golden.make_evaluated", tmp_path / "made.json"]
    environment = os.environ | {"PYTHONPATH": str(packages)}
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, timeout=1200)
    assert json.loads((tmp_path / "made.json").read_text()) == pytest.approx(json.loads(STORED.read_text()), rel=1e-5)
