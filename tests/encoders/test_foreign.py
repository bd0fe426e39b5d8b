"""Encoders by open_clip and timm, which need torchvision: installed into a folder of their own, and tested there."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.helpers import REPOSITORY

PEERS = ["torch-fidelity==0.4.0", "pytorch-fid==0.3.0", "tqdm"]
PACKAGES = ["open_clip_torch", "timm", "torchvision", "ftfy", "wcwidth", *PEERS]


@pytest.mark.long
def test_encoders_of_foreign_packages(tmp_path):
    """Beside a torchvision, those of transformers and diffusers are tested once more, too: both import it."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "packages"]
    subprocess.run([*install, "--constraint", REPOSITORY / "constraints.txt", *PACKAGES], check=True, timeout=600)
    # Torch-fidelity installs its tests under the name of ours.
    shutil.rmtree(tmp_path / "packages/tests")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long and not gpu"]
    done = subprocess.run(
        [*command, "tests/encoders"],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "packages")},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout[-5000:]
