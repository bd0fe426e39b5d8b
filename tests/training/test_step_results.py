"""The engine's steps are those of a hand-written loop, however a batch is shared, in every stage of ZeRO."""

import math

import pytest

from tests.training import outside

TWENTY = " 20 steps"
ROUNDED = (1e-6, 1e-6, 1e-6)
ROWS = {
    # The loop adds gradients in fp32.
    **{f"stage 1, {shared}, bf16": (0, 1e-6, 0) for shared in ("1 x 1", "1 x 2", "2 x 1", "2 x 2")},
    **{f"stage {stage}, 2 x 2, bf16{TWENTY}": (0, 1e-6, math.inf) for stage in (1, 2, 3)},
    # Stage 0 adds gradients in bf16: twenty steps of Adam go 0.2 at most.
    f"stage 0, 2 x 2, bf16{TWENTY}": (0.01, 0.02, 1e-3),
    # SGD goes as far as the gradients, where AdamW makes whole steps of their roundings.
    f"stage 0, 2 x 2, bf16 sgd{TWENTY}": (1e-4, math.inf, 1e-4),
    f"stage 0, 2 x 2, fp16 sgd{TWENTY}": (1e-5, math.inf, 1e-5),
    # A gradient is clipped by its norm over all ranks; it, and with it all that is clipped, differs in its last digits.
    **{f"stage 1, {shared}, bf16 clipped sgd": (1e-6, 1e-6, math.inf) for shared in ("1 x 2", "2 x 2")},
    **{f"stage {stage}, 2 x 2, fp32 clipped{TWENTY}": ROUNDED for stage in range(4)},
    # A layer that is used now and then gets no gradient of another step.
    **{f"stage {stage}, 1 x 2, fp32 sometimes": (1e-6, 1e-6, math.inf) for stage in range(4)},
    "stage 1, 1 x 2, bf16 sometimes": (1e-6, 1e-6, math.inf),
    # Without ZeRO a training in low precision begins with its first step.
    **{f"stage 0, 1 x 1, {precision}": (0, 1e-2, math.inf) for precision in ("bf16", "fp16")},
    "stage 0, 1 x 1, fp32": ROUNDED,
    "stage 3, 4 x 1, fp32": ROUNDED,
    **{f"stage {stage}, 2 x 2, fp16{TWENTY}": (1e-8, 1e-6, 1e-8) for stage in (1, 2, 3)},
    # Stage 0 adds gradients in fp16.
    **{f"stage 0, 2 x 2, fp16{end}": (1e-3, 1e-3, 1e-4) for end in (TWENTY, " clipped")},
}
"""Largest differences of weights, norms and losses in every case, each of which stands for something."""


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    """What steps.py finds."""
    return outside.run("steps", tmp_path_factory.mktemp("steps"), "short", timeout=300)[0]


@pytest.mark.parametrize("case", ROWS)
def test_weights_norms_and_losses_are_those_of_a_loop_by_hand(differences, case):
    found = differences[case]
    for name, most in zip(("weights", "norms", "losses"), ROWS[case], strict=True):
        assert found[name] <= most, (name, found)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("stage", range(4))
def test_a_training_starts_from_the_fp32_weights_of_rank_0_which_are_not_rounded(differences, stage, precision):
    found = differences[f"stage {stage}, 3 x 1, {precision} uneven"]
    assert len(found) == 6 and all(found.values()), found


def test_in_fp16_the_scale_halves_and_doubles_as_in_a_loop_that_scales_by_hand(differences):
    low, high = 2.0**16, 2.0**17
    scales = [low, low, high, *4 * [low, low, low, high, high]]
    for case in (case for case in ROWS if "2 x 2, fp16" in case and "sgd" not in case):
        trained, expected = differences[case]["scales"]
        assert trained == expected == scales[: 20 if case.endswith(TWENTY) else 6], case


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
    found, _ = outside.run("steps", tmp_path, "grid", timeout=1800)
    assert len(found) == 4 * 3 * 3 * 2 * 2
    agree(found)
