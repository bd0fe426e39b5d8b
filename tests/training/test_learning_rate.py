import pytest

from tests.training.scenarios import training


@pytest.mark.parametrize(
    "schedule, changes, expected",
    [
        ("constant", {}, {8: 0.0025, 16: 0.005, 31: 0.0096875, 32: 0.01, 40: 0.01, 10**9: 0.01}),
        ("constant", {"warmup_images": 0}, {8: 0.01}),
        ("cosine", {}, {16: 0.005, 32: 0.01, 232: 0.005, 132: 0.01 * (1 + 2**-0.5) / 2, 432: 0.0, 10**9: 0.0}),
        ("cosine", {"final_rate_share": 0.1}, {232: 0.0055, 432: 0.001, 10**9: 0.001}),
        ("linear", {"decay_images": 132}, {32: 0.01, 82: 0.005, 107: 0.0025, 132: 0.0, 432: 0.0}),
        ("inverse_root", {}, {16: 0.005, 32: 0.01, 128: 0.005, 3200: 0.001}),
        ("inverse_root", {"decay_images": 64}, {64: 0.01, 256: 0.005}),
        ("inverse_root", {"decay_images": 8, "warmup_images": 0}, {8: 0.01, 32: 0.005}),
    ],
)
def test_the_learning_rate_rises_in_a_straight_line_and_then_takes_its_course(schedule, changes, expected):
    own = training(**{"images": 432, "warmup_images": 32, "schedule": schedule} | changes)
    for images, rate in expected.items():
        assert own.rate_at(images) == pytest.approx(rate, abs=1e-15)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"final_rate_share": 0.1}, "schedule: constant never decays"),
        ({"schedule": "inverse_root", "warmup_images": 0}, "inverse_root needs decay_images, or a warm-up"),
        ({"schedule": "cosine", "warmup_images": 80}, "the decay ends within the warm-up"),
    ],
)
def test_a_course_that_cannot_be_taken_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        training(**changes)
