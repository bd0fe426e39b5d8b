"""Programs of the tests that fork: each runs in a process of its own, and its last line is a result in JSON."""

import json
import os
from typing import Any

from tests import warm_process


def run(module: str, *arguments: object, timeout: float) -> tuple[Any, str]:
    """Run a module of tests.training, and return its result and all that it says."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = warm_process.run(f"tests.training.{module}", *arguments, timeout=timeout, environment=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.rsplit("RESULT ", 1)[1].splitlines()[0]), done.stdout + done.stderr
