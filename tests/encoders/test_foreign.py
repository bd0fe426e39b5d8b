"""Encoders by open_clip and timm, which need torchvision: installed into a folder of their own, and tested there."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.helpers import REPOSITORY

PEERS = ["torch-fidelity==0.4.0", "tqdm"]
PACKAGES = ["open_clip_torch", "timm", "torchvision", "ftfy", "wcwidth", *PEERS]


OLD_TIMM = "timm==1.0.17"
"""An old version: up to 1.0.25, timm unpickles code by itself."""


@pytest.mark.long
def test_encoders_of_foreign_packages(tmp_path):
    """Beside a torchvision, those of transformers and diffusers are tested once more, too: both import it."""
    install(tmp_path / "packages", *PACKAGES)
    # Torch-fidelity installs its tests under the name of ours.
    shutil.rmtree(tmp_path / "packages/tests")
    run(tmp_path / "packages", "tests/encoders")


@pytest.mark.long
def test_an_old_timm_executes_nothing_and_reads_the_right_file(tmp_path):
    install(tmp_path / "packages", *PACKAGES)
    shutil.rmtree(tmp_path / "packages/timm")
    install(tmp_path / "packages", OLD_TIMM, constraint=None)
    run(tmp_path / "packages", "tests/encoders/test_optional_packages.py")


def install(folder, *packages, constraint=REPOSITORY / "constraints.txt"):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", folder]
    constraints = ["--constraint", constraint] if constraint else []
    subprocess.run([*command, *constraints, *packages], check=True, timeout=600)


def run(folder, tests):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long and not gpu"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    options = {"capture_output": True, "text": True, "check": False, "timeout": 1200}
    done = subprocess.run([*command, tests], cwd=REPOSITORY, env=environment, **options)
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout[-5000:]
