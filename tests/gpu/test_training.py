"""Steps of a training on a real GPU."""

import pytest

from tests.benchmarks import gpu_sides
from tests.benchmarks.gpu_sides import Setup
from tests.benchmarks.gpu_table import apart

pytestmark = pytest.mark.gpu


def test_no_step_of_zero_1_in_bf16_waits_for_the_gpu():
    """From the forward pass to the updated averages, anything that waits is an error."""
    said = apart(gpu_sides.unwatched_steps, 300, Setup("cuda", tiny=True, seconds=0.1, batch=4))
    assert said.startswith("a gradient of norm 0.") or said.startswith("a gradient of norm 1."), said
