"""Trainings by two and four ranks, in a process of their own."""

import json

import pytest

from tests.training import outside

STAGES = [(0, "fp32"), (0, "bf16"), (1, "fp32"), (1, "bf16"), (2, "bf16"), (3, "fp32"), (3, "bf16")]
STAGES += [(0, "fp16"), (3, "fp16")]
"""Those of pair.py, whose imports take seconds."""


@pytest.fixture(scope="module")
def paired(tmp_path_factory):
    """What all of it came to, and what was said."""
    return outside.run("pair", tmp_path_factory.mktemp("pair"), timeout=600)


@pytest.fixture(scope="module")
def found(paired):
    return paired[0]


@pytest.fixture(scope="module")
def output(paired):
    return paired[1]


@pytest.mark.parametrize(
    "name, reference, ranks, stops",
    [("stopped", "reference", 2, 5), ("no threads", "short", 2, 3), ("4 ranks, 4 threads", "4 ranks", 4, 3)],
)
def test_where_it_was_stopped_and_how_many_threads_read_ahead_changes_no_bit(found, name, reference, ranks, stops):
    whole, stopped = found[reference], found[name]
    assert stopped["codes"] == [[3] * ranks] * stops + [[0] * ranks] and whole["codes"] == [[0] * ranks]
    assert stopped["weights"] == whole["weights"] and stopped["curve"] == whole["curve"]


def test_a_batch_with_a_loss_that_is_not_finite_is_skipped_counted_and_shown(found, output):
    for name in ("stage 1, fp32, 0 stops", "stage 1, fp32, 2 stops", "stage 1, bf16, 0 stops"):
        assert found[name]["figures"]["skipped"] == 1 and "NaN" not in found[name]["curve"], name
        assert found[name]["weights"] != found["short"]["weights"] and found[name]["curve"] != found["short"]["curve"]
    assert found["short"]["facts"] == {"skipped_steps": 0} and "skipped" not in found["short"]["figures"]
    assert "images 24 to 31: their gradient is not finite; step 1 that is skipped" in output


@pytest.mark.parametrize("stage, precision", STAGES)
def test_a_training_in_any_stage_of_zero_goes_on_where_it_was_and_skips_what_is_not_finite(found, stage, precision):
    whole, stopped = (found[f"stage {stage}, {precision}, {stops} stops"] for stops in (0, 2))
    assert whole["codes"] == [[0, 0]] and stopped["codes"] == [[3, 3], [3, 3], [0, 0]]
    assert whole["facts"] == stopped["facts"] == {"skipped_steps": 1}
    assert stopped["weights"] == whole["weights"] and stopped["curve"] == whole["curve"]
    early, last = (whole["kept"][f"images-{images:012d}.safetensors"] for images in (16, 80))
    assert stopped["kept"] == whole["kept"] and early != last == whole["weights"]
    # It was looked at, with its average, which changed no bit.
    assert stopped["seen apart"] < (1e-6 if precision == "fp32" else 0.02) and stopped["in training"] is False


def test_steps_of_which_the_host_reads_nothing_are_the_same_to_the_bit(found):
    unwatched, whole = found["unwatched"], found["stage 1, bf16, 0 stops"]
    assert unwatched["weights"] == whole["weights"] and unwatched["curve"] == whole["curve"]
    assert unwatched["facts"] == whole["facts"] and found["read in steps"]["bf16"] == 0


def test_in_fp16_the_host_waits_for_the_norm_of_a_step_and_not_for_each_gradient(found):
    # In each of three steps once, and before each of the two groups of parameters is clipped.
    assert found["read in steps"]["fp16"] == 3 * (1 + 2)


def test_fp16_on_a_device_without_it_is_refused_with_the_keys_to_set(found, output):
    assert found["fp16 refused"] == [1, 1]
    said = "precision: fp16 needs a GPU; set gpus_per_node of this stage in the site, or precision: bf16 or fp32"
    assert said in output


def test_other_ranks_in_another_stage_and_other_micro_batches_go_on_to_rounding(found):
    elastic, undisturbed = found["elastic"], found["undisturbed"]
    assert [len(codes) for codes in elastic["codes"]] == [2, 1, 4, 2] and not any(elastic["codes"][-1])
    assert 0 < elastic["farthest"] < 1e-5
    curves = [json.loads(each["curve"]) for each in (elastic, undisturbed)]
    for (images, loss), (other_images, other_loss) in zip(*curves, strict=True):
        assert images == other_images and loss == pytest.approx(other_loss, rel=1e-5)
    # One batch is not finite for the last rank, in whichever attempt sees it.
    assert elastic["facts"]["skipped_steps"] == undisturbed["facts"]["skipped_steps"] == 1


def test_what_went_on_with_other_resources_is_recorded(found):
    assert "resources" not in found["undisturbed"]["facts"]
    recorded = [tuple(each.values()) for each in found["elastic"]["facts"]["resources"]]
    assert recorded == [(0, 2, 1, 1), (24, 1, 0, 2), (48, 4, 3, 1), (64, 2, 2, 4)]


def test_a_stop_is_agreed_on_within_so_many_steps(found):
    assert found["seldom agreed"]["codes"] == [[3, 3], [0, 0]]
    assert found["seldom agreed"]["weights"] == found["short"]["weights"]


def test_a_training_that_has_diverged_is_given_up(found, output):
    assert 0 not in found["diverged"]["codes"][-1]
    assert "no gradient was finite in 4 steps up to 56 images; lower its learning_rate, 0.01" in output


def test_a_training_that_ends_diverged_fails_also_where_it_goes_on(found, output):
    assert found["last one skipped"]["codes"] == [[3, 3], [0, 0]]
    for name in ("last two skipped", "most skipped", "grown"):
        assert 0 not in found[name]["codes"][-1], name
    diverged = "the training has diverged: "
    assert f"{diverged}no gradient was finite in its last 2 steps; lower its learning_rate, 0.01" in output
    assert f"{diverged}no gradient was finite in 7 of its 10 steps" in output
    assert f"{diverged}the median of its losses in a step has grown from " in output
    assert "; lower its learning_rate, 10\n" in output


def test_a_step_takes_no_collective_but_deepspeeds_the_agreement_and_when_logged_the_mean_loss(found):
    assert found["collectives"] == [["allreduce_"], ["allreduce_", "allreduce_"]] * 2 + [["allreduce_"]]


def test_the_figures_of_two_ranks_are_shown_at_the_end(found, output):
    figures = found["reference"]["figures"]
    names = "loss learning_rate gradient_norm images_per_second data_wait tflops memory_gib"
    assert figures.keys() == set(names.split())
    assert figures["loss"] == json.loads(found["reference"]["curve"])[-1][1] and figures["gradient_norm"] > 0
    assert figures["tflops"] == pytest.approx(figures["images_per_second"] * 1e6 / 1e12)
    assert "\n112 of 112 images: loss " in output and " TFLOP/s, " in output


def test_the_end_of_a_training_takes_one_model_of_host_memory_on_rank_0_and_next_to_nothing_elsewhere(found):
    first, second = found["gather"]
    assert first["names"] == ["weight"] and first["right"] and second["names"] == []
    assert 0.9 < first["grown"] < 1.6 and second["grown"] < 0.6
