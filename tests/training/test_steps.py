"""The engine's steps in bf16 are those of a hand-written loop, however a batch is shared."""

import json
import os
import subprocess
import sys

import pytest

from tests.helpers import REPOSITORY


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    """What steps.py prints."""
    command = [sys.executable, "-m", "tests.training.steps", str(tmp_path_factory.mktemp("steps"))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.rsplit("RESULT ", 1)[1].splitlines()[0])


SHARED = ["1 x 1", "1 x 2", "2 x 1", "2 x 2"]
"""Ranks and micro batches."""


@pytest.mark.parametrize("shared", SHARED)
def test_weights_are_those_of_a_loop_that_adds_gradients_in_fp32(differences, shared):
    weights, worst, norms = differences[f"stage 1, {shared}, bf16"]
    assert weights == 0 and norms < 1e-6, worst


@pytest.mark.parametrize("shared", SHARED)
def test_a_gradient_is_clipped_by_its_norm_over_all_ranks(differences, shared):
    weights, worst, norms = differences[f"stage 1, {shared}, bf16 clipped"]
    # The norm, and with it all that is clipped, differs in its last digits; bf16 makes more of that.
    assert weights < 1e-5 and norms < 1e-6, worst


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("clipped", ["", " clipped"])
def test_all_stages_of_zero_train_alike(differences, stage, clipped):
    weights, worst, norms = differences[f"stage {stage}, 2 x 2, fp32{clipped}"]
    assert weights < 1e-6 and norms < 1e-6, worst
    if not clipped:
        weights, worst, norms = differences[f"stage {stage}, 2 x 2, bf16"]
        # Stage 0 adds gradients in bf16: six steps of Adam go 0.05 at most.
        assert (weights < 0.01 and norms < 0.02) if stage == 0 else (weights == 0 and norms < 1e-6), worst


@pytest.mark.parametrize("case", [*(f"stage {stage}, 1 x 2, fp32" for stage in range(4)), "stage 1, 1 x 2, bf16"])
def test_a_layer_that_is_used_now_and_then_gets_no_gradient_of_another_step(differences, case):
    weights, worst, norms = differences[f"{case} sometimes"]
    assert weights < 1e-6 and norms < 1e-6, worst


def test_without_zero_a_training_in_bf16_begins_with_its_first_step(differences):
    weights, worst, norms = differences["stage 0, 1 x 1, bf16"]
    assert weights == 0 and norms < 1e-2, worst


@pytest.mark.parametrize("case", ["stage 3, 4 x 1, fp32", "stage 0, 1 x 1, fp32"])
def test_a_stage_trains_alike_by_other_numbers_of_ranks(differences, case):
    weights, worst, norms = differences[case]
    assert weights < 1e-6 and norms < 1e-6, worst
