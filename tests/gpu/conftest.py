"""Tests that need a real GPU: `make gpu-check`. Without one each of them is an error; none is skipped."""

import pytest

from hpcddm.jobs import devices


@pytest.fixture(scope="session", autouse=True)
def gpus() -> int:
    """How many GPUs torch can use; at least one."""
    count = devices.visible_gpus()
    if not count:
        nothing = "no GPU is visible to torch here, so nothing was checked"
        pytest.fail(f"{nothing}: {devices.missing_gpu_advice()}", pytrace=False)
    return count
