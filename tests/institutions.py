"""Testbed clusters that are institutions of their own, with no network, user or key in common."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.helpers import REPOSITORY
from tests.isolation import places

TESTBED = REPOSITORY / "slurm/testbed"


@dataclass(frozen=True)
class Institution:
    """The cluster `name` of an isolated testbed, and its user."""

    name: str
    testbed: Path

    @property
    def folder(self) -> Path:
        """The user's private folder, its home."""
        return self.testbed / self.name / "user"

    @property
    def user(self) -> str:
        return self.folder.owner()

    def run(
        self, *command: object, check: bool = True, timeout: float = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the user, in its folder and its network, with SLURM_CONF and HOME of this institution.

        Nothing else of this environment goes along but the path: the homes and caches of whoever tests are not its own.
        """
        settings = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", **environment}
        enter = [sys.executable, str(TESTBED / "testbed.py"), "enter", str(self.testbed), *map(str, command)]
        done = subprocess.run(enter, env=settings, capture_output=True, text=True, timeout=timeout, check=False)
        assert not (check and done.returncode), done.stdout + done.stderr
        return done


def start(name: str, testbed: Path) -> str:
    """Start or repair an isolated testbed, and return what it says.

    Its user sees what a test may read, such as this Python and this checkout, even below another's private folder.
    """
    settings = os.environ | {"HPCDDM_TESTBED_ISOLATED": name, "PYTHON": sys.executable}
    enter = [sys.executable, places.__file__, "enter", "bash", str(TESTBED / "up.sh"), str(testbed)]
    done = subprocess.run(enter, env=settings, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def institution(name: str, testbed: Path) -> Iterator[Institution]:
    """Run an isolated testbed for a while."""
    try:
        start(name, testbed)
        yield Institution(name, testbed)
    finally:
        down = ["bash", str(TESTBED / "down.sh"), str(testbed)]
        subprocess.run(down, env=os.environ | {"PYTHON": sys.executable}, timeout=120, check=True)
