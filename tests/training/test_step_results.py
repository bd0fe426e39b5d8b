"""The engine's steps are those of a hand-written loop, however a batch is shared, in every stage of ZeRO."""

import json
import os
import subprocess
import sys

import pytest

from tests.helpers import REPOSITORY


def compared(folder, which, timeout):
    """What steps.py prints."""
    command = [sys.executable, "-m", "tests.training.steps", str(folder), which]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.rsplit("RESULT ", 1)[1].splitlines()[0])


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    """Of single cases, each of which stands for something."""
    return compared(tmp_path_factory.mktemp("steps"), "short", 300)


TWENTY = " 20 steps"
SHARED = ["1 x 1", "1 x 2", "2 x 1", "2 x 2"]
"""Ranks and micro batches."""


@pytest.mark.parametrize("shared", SHARED)
def test_weights_are_those_of_a_loop_that_adds_gradients_in_fp32(differences, shared):
    found = differences[f"stage 1, {shared}, bf16"]
    assert found["weights"] == 0 and found["losses"] == 0 and found["norms"] < 1e-6, found


@pytest.mark.parametrize("shared", SHARED)
def test_a_gradient_is_clipped_by_its_norm_over_all_ranks(differences, shared):
    found = differences[f"stage 1, {shared}, bf16 clipped sgd"]
    # The norm, and with it all that is clipped, differs in its last digits; bf16 makes more of that.
    assert found["weights"] < 1e-6 and found["norms"] < 1e-6, found


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("clipped", ["", " clipped"])
def test_all_stages_of_zero_train_alike(differences, stage, clipped):
    found = differences[f"stage {stage}, 2 x 2, fp32{clipped or TWENTY}"]
    assert found["weights"] < 1e-6 and found["norms"] < 1e-6 and found["losses"] < 1e-6, found
    if not clipped:
        found = differences[f"stage {stage}, 2 x 2, bf16{TWENTY}"]
        # Stage 0 adds gradients in bf16: twenty steps of Adam go 0.2 at most.
        in_bf16 = found["weights"] < 0.01 and found["norms"] < 0.02 and found["losses"] < 1e-3
        assert in_bf16 if stage == 0 else (found["weights"] == 0 and found["norms"] < 1e-6), found


@pytest.mark.parametrize("precision, most", [("bf16", 1e-4), ("fp16", 1e-5)])
def test_without_zero_only_the_sum_of_gradients_is_rounded(differences, precision, most):
    """SGD goes as far as the gradients, where AdamW makes whole steps of their roundings."""
    found = differences[f"stage 0, 2 x 2, {precision} sgd{TWENTY}"]
    assert found["weights"] < most and found["losses"] < most, found


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("stage", range(4))
def test_a_training_starts_from_the_fp32_weights_of_rank_0_and_rounds_only_those_it_computes_with(
    differences, stage, precision
):
    found = differences[f"stage {stage}, 3 x 1, {precision} uneven"]
    assert len(found) == 6 and all(found.values()), found


@pytest.mark.parametrize("case", [*(f"stage {stage}, 1 x 2, fp32" for stage in range(4)), "stage 1, 1 x 2, bf16"])
def test_a_layer_that_is_used_now_and_then_gets_no_gradient_of_another_step(differences, case):
    found = differences[f"{case} sometimes"]
    assert found["weights"] < 1e-6 and found["norms"] < 1e-6, found


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_without_zero_a_training_in_low_precision_begins_with_its_first_step(differences, precision):
    found = differences[f"stage 0, 1 x 1, {precision}"]
    assert found["weights"] == 0 and found["norms"] < 1e-2, found


@pytest.mark.parametrize("case", ["stage 3, 4 x 1, fp32", "stage 0, 1 x 1, fp32"])
def test_a_stage_trains_alike_by_other_numbers_of_ranks(differences, case):
    found = differences[case]
    assert found["weights"] < 1e-6 and found["norms"] < 1e-6, found


@pytest.mark.parametrize(
    "case", [*(f"stage {stage}, 2 x 2, fp16{TWENTY}" for stage in range(4)), "stage 0, 2 x 2, fp16 clipped"]
)
def test_in_fp16_the_scale_halves_and_doubles_and_the_steps_are_those_of_a_loop_that_scales_by_hand(differences, case):
    found = differences[case]
    trained, expected = found["scales"]
    low, high, steps = 2.0**16, 2.0**17, 20 if case.endswith(TWENTY) else 6
    assert trained == expected == [low, low, high, *4 * [low, low, low, high, high]][:steps]
    # Stage 0 adds gradients in fp16.
    exact = not case.startswith("stage 0")
    assert found["weights"] < (1e-8 if exact else 1e-3) and found["losses"] < (1e-8 if exact else 1e-4), found
    assert found["norms"] < (1e-6 if exact else 1e-3), found


def agree(found):
    """Fail with the worst tensor of a case in fp32 that differs by more than rounding from the loop by hand."""
    for case, own in found.items():
        most = 1e-6 if case.endswith("sgd") else 1e-3
        assert own["losses"] <= 1e-5, f"{case}: losses differ by {own['losses']}"
        assert own["relative"] <= most, f"{case}: {own['worst relative']} differs by {own['relative']} of its norm"


def test_blocks_that_recompute_train_alike_in_every_stage(differences):
    found = {case: own for case, own in differences.items() if " stack" in case}
    assert len(found) == 4
    agree(found)


@pytest.mark.long
def test_stages_ranks_parts_of_a_batch_and_recomputing_change_nothing_but_rounding(tmp_path):
    found = compared(tmp_path, "grid", 1800)
    assert len(found) == 4 * 3 * 3 * 2 * 2
    agree(found)
