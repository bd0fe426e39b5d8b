"""The training loop in a process of its own: exact resume, torn states, the average."""

import json

import pytest

from hpcddm.training.loop import count_micro_batches
from tests.training import outside


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What all trainings of alone.py came to, and what was said."""
    return outside.run("alone", tmp_path_factory.mktemp("loop"), timeout=240)


@pytest.fixture(scope="module")
def found(trained):
    return trained[0]


@pytest.mark.parametrize("name, stops", [("stop-often", 4), ("stop-last", 1), ("stop-before-last", 1)])
def test_where_it_was_stopped_changes_no_bit(found, name, stops):
    reference, stopped = found["chains"]["reference"], found["chains"][name]
    assert stopped["codes"] == [[3]] * stops + [[0]]
    assert stopped["weights"] == reference["weights"] == found["chains"]["saved at every step"]["weights"]
    assert stopped["curve"] == reference["curve"]


def test_a_training_in_micro_batches_is_exact_too(found):
    chains = found["chains"]
    assert chains["micro batches, stopped"]["weights"] == chains["micro batches"]["weights"]
    assert [images for images, _ in json.loads(chains["micro batches"]["curve"])] == [24, 40, 64, 80]


@pytest.mark.parametrize("share, most, parts", [(8, None, 1), (8, 8, 1), (8, 100, 1), (8, 4, 2), (8, 3, 4), (7, 3, 7)])
def test_micro_batches_are_equal_and_no_larger_than_they_may_be(share, most, parts):
    assert count_micro_batches(share, most) == parts


def test_the_weights_that_a_training_starts_from_are_not_needed_once_there_is_a_state(found):
    chains = found["chains"]
    assert chains["seeded stopped"]["weights"] == chains["seeded"]["weights"] != chains["reference"]["weights"]


def test_a_training_in_bf16_whose_steps_are_next_to_nothing_ends_with_the_fp32_weights_it_started_from(found):
    assert found["chains"]["seeded still"] is True


def test_the_curve_has_a_point_for_every_so_many_images_and_falls(found):
    images, losses = zip(*json.loads(found["chains"]["reference"]["curve"]), strict=True)
    assert images == (24, 40, 64, 80) and losses[-1] < losses[0]


def test_the_last_two_states_are_kept(found):
    assert len(found["chains"]["stop-often"]["states"]) == len(found["chains"]["saved at every step"]["states"]) == 2


@pytest.mark.parametrize("name", ["stopped", "killed before", "killed after", "later"])
def test_snapshots_are_there_whole_wherever_the_training_was_interrupted(found, name):
    whole, interrupted = found["snapshots"]["whole"], found["snapshots"][name]
    assert interrupted["kept"] == whole["kept"] and interrupted["curve"] == whole["curve"]
    kept = whole["kept"]
    stems = ["weights", *(f"images-{number:012d}" for number in (20, 40, 80))]
    added = ("", "-power-0.05", "-power-0.1")
    assert set(kept) == {f"{stem}{one}.safetensors" for stem in stems for one in added}
    assert all(kept[f"weights{one}.safetensors"] == kept[f"{stems[-1]}{one}.safetensors"] for one in added)
    assert len(set(kept.values())) == 3 * len(added) and whole["weights"] == found["chains"]["reference"]["weights"]


def test_an_average_made_afterwards_is_near_the_one_that_was_kept(found):
    early, late = found["powers"][:2], found["powers"][2:]
    # Made of two snapshots, and of ten.
    assert all(1e-3 < one["of the weights"] < 0.03 for one in early)
    assert all(one["of the weights"] < 1e-3 and one["of the two's distance"] < 0.01 for one in late)


def test_a_state_beyond_a_snapshot_that_is_not_there_or_torn_cannot_give_it(found, trained):
    assert found["snapshots"]["late"] == found["snapshots"]["torn"] == [1]
    message = "train/expert-00: snapshot 20, at 24 images of this unit, is missing"
    said = [line for line in trained[1].splitlines() if line.startswith("hpcddm.errors") and message in line]
    assert len(said) == 2 and all("take 20 out of `snapshots`, or delete the states beyond it" in one for one in said)


def test_a_torn_state_is_passed_over_whichever_of_its_files_is_torn(found):
    assert found["torn"].keys() == {"state.json", "rank00000.safetensors"}
    for name, result in found["torn"].items():
        assert result["resumed at"] == 24, name
        assert result["weights"] == found["chains"]["reference"]["weights"], name


def test_the_average_is_fp32_of_the_fp32_masters_and_moves(found):
    assert all(found["ema"].values()), found["ema"]


def test_a_snapshot_at_the_end_of_a_training_is_written_when_it_goes_on(found):
    whole, longer = found["snapshots"]["whole"], found["snapshots"]["longer"]
    assert longer["weights"] == whole["weights"]
    assert longer["kept"] == {name: digest for name, digest in whole["kept"].items() if "0000020" not in name}
