"""Programs of the tests that fork: each runs in a process of its own, and its last line is a result in JSON."""

import json
import os
import subprocess
import sys
from typing import Any

from tests.helpers import REPOSITORY


def run(module: str, *arguments: object, timeout: float) -> tuple[Any, str]:
    """Run a module of tests.training, and return its result and all that it says."""
    command = [sys.executable, "-m", f"tests.training.{module}", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.rsplit("RESULT ", 1)[1].splitlines()[0]), done.stdout + done.stderr
