"""The tests on real Slurm once more, on newer Slurms, each in a Debian root of its own (slurm/testbed/roots.py).

The roots are made where they are missing; HPCDDM_ROOTS names their folder.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.helpers import REPOSITORY

pytestmark = [pytest.mark.long, pytest.mark.root]
# Arrays, two nodes, requeue, resubmission, time limit, preemption, dead daemons, status, cost, sweeps.
FILES = (
    *("tests/launch/slurm/test_on_slurm.py", "tests/real/test_slurm.py", "tests/real/test_coming_back.py"),
    *("tests/real/test_status.py", "tests/real/test_cost.py", "tests/real/test_sweep.py", "tests/real/test_storm.py"),
)
VERSIONS = {"trixie": (24, 11), "sid": (26, 5)}
"""By Debian's suite; sid moves on, so that is the least."""


class Root:
    """One suite's root with a testbed in it."""

    def __init__(self, suite: str, testbed: Path) -> None:
        self.suite, self.testbed = suite, testbed
        self.environment = os.environ | {"HPCDDM_TESTBED": str(testbed), "PYTHON": sys.executable}

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the root."""
        line = [sys.executable, "slurm/testbed/roots.py", self.suite, *command]
        settings = {"cwd": REPOSITORY, "env": self.environment | environment, "check": False}
        return subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **settings)

    def version(self) -> tuple[int, ...]:
        said = self.run("sinfo", "-V", SLURM_CONF=f"{self.testbed}/home/slurm.conf").stdout
        return tuple(map(int, re.findall(r"\d+", said)))

    def passed(self, *arguments: str) -> int:
        """How many tests passed; fails with their output unless all did."""
        pytest = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
        done = self.run(*pytest, *arguments, OMP_NUM_THREADS="1", CI="1")
        print(done.stdout)
        assert done.returncode == 0 and "skipped" not in done.stdout.splitlines()[-1], done.stdout[-4000:]
        return int(re.search(r"(\d+) passed", done.stdout)[1])


@pytest.fixture(scope="module", params=VERSIONS)
def newer(request):
    # A socket's path is short.
    folder = Path(tempfile.mkdtemp(prefix="hpcddm-"))
    root = Root(request.param, folder)
    try:
        up = root.run("bash", "slurm/testbed/up.sh", str(folder))
        assert up.returncode == 0, up.stdout
        yield root
    finally:
        root.run("bash", "slurm/testbed/down.sh", str(folder))
        shutil.rmtree(folder)


def test_it_is_newer(newer):
    assert newer.version() >= VERSIONS[newer.suite]


def test_what_holds_on_the_machines_slurm_holds_on_a_newer_one(newer):
    assert newer.passed("-m", "slurm and not long", *FILES) > 30


def test_a_training_with_the_images_own_python(newer):
    if newer.suite == "sid":
        assert newer.run("apptainer", "--version").stdout.startswith("apptainer version")
    assert newer.passed("-m", "slurm", "tests/real/test_container.py") == 1
