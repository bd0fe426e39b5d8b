import pytest

from hpcddm.training.schedule import constant_with_warmup
from tests.training.scenarios import training


@pytest.mark.parametrize(
    "images_seen, expected", [(8, 0.0025), (16, 0.005), (31, 0.0096875), (32, 0.01), (40, 0.01), (10**9, 0.01)]
)
def test_the_learning_rate_rises_in_a_straight_line_and_stays(images_seen, expected):
    assert constant_with_warmup(images_seen, training(warmup_images=32)) == pytest.approx(expected, rel=1e-12)


def test_without_a_warm_up_it_is_there_at_once():
    assert constant_with_warmup(8, training(warmup_images=0)) == 0.01
