"""A training over two nodes whose Python is that of a container's image, stopped by a signal and brought back.

The image is a folder that slurm/testbed/roots.py makes; apptainer runs it where it is installed, as in the root of the
newest Debian (test_newer_slurm.py), else charliecloud.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpcddm.jobs.attempt_records import read_records
from tests.helpers import REPOSITORY
from tests.real.storm import KEY, ON_SLURM, Disturbance, Storm, weights

pytestmark = [pytest.mark.slurm, pytest.mark.long]
# As users without privileges get it; root has not all of them everywhere.
APPTAINER = ["apptainer", "--quiet", "exec", "--userns"]


@pytest.fixture(scope="module")
def image():
    """The folder of the image."""
    made = subprocess.run(
        [sys.executable, REPOSITORY / "slurm/testbed/roots.py", "--image"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


@pytest.fixture(scope="module")
def runtime(image):
    """The words before Python, installed where they are missing."""
    if shutil.which("apptainer"):
        return [*APPTAINER, str(image)]
    if not shutil.which("ch-run"):
        subprocess.run(["apt-get", "-q", "install", "-y", "charliecloud-runtime"], check=True)
    return ["ch-run", str(image), "--"]


def inside(process, image):
    """Whether a process runs the image's Python, with the image's torch."""
    (torch,) = {entry.path for entry in process.memory_maps() if entry.path.endswith("/libtorch_cpu.so")}
    seen = [f"/proc/{process.pid}/exe", f"/proc/{process.pid}/root{torch}"]
    own = [image / "usr/bin/python3", *image.glob("usr/local/lib/python3*/dist-packages/torch/lib/libtorch_cpu.so")]
    return list(map(identity, seen)) == list(map(identity, own))


def identity(path):
    """Of a file, also through an overlay, which has another device number."""
    file = os.stat(path)
    return file.st_ino, file.st_size, file.st_mtime_ns


def test_a_training_over_two_nodes_with_the_images_own_python(home, tmp_path, image, runtime):
    # The image holds libraries only: the code is the run's own copy.
    own = {"container": runtime, "python": "python3", "setup": ["export USER=$SLURM_JOB_USER"]}  # ch-run asks for it
    keys = "\n".join([ON_SLURM, *(f"{key}: {json.dumps(value)}" for key, value in own.items())])
    # As every folder that the image must see, below /tmp.
    data = shutil.copytree(REPOSITORY / "experiments/quickstart", tmp_path / "data")
    storm = Storm(tmp_path, home, 0, images=24_000, keys=keys, settings=(f"data.source.folder={data}",))
    storm.submit(storm.run, "slurm")
    storm.until(lambda: storm.phase() == "step", 900, "a step")
    ranks = storm.ranks()
    assert [inside(rank, image) for rank in ranks] == [True, True]
    assert [rank.environ()["SLURM_NODEID"] for rank in ranks] == ["0", "1"]
    storm.rage([Disturbance("scancel", "step", 0.0)])
    (struck,) = storm.log
    assert struck.note == "--signal=USR2" and struck.reached == struck.continued_from > 0
    first = read_records(storm.run / "logs" / KEY)[0]
    assert (first.decision, first.ended["reason"]) == ("requeue", "SIGUSR2")
    storm.submit(tmp_path / "calm", "local")
    assert weights(storm.run) == weights(tmp_path / "calm")
