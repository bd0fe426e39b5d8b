import numpy as np
import pytest
from scipy import stats

from hpcddm.evaluation.metrics import all_metrics
from hpcddm.evaluation.metrics.metric_inputs import means_left_out
from hpcddm.evaluation.statistics.tenths import difference, interval, verdict

METRICS = {metric.key: metric for metric in all_metrics()}
RNG = np.random.default_rng(0)


def compared(a, b):
    return difference(a.mean(), means_left_out(a), b.mean(), means_left_out(b))


def test_the_interval_of_a_mean_is_the_t_interval_of_the_means_of_tenths():
    values = RNG.standard_normal(200)
    estimate = interval(values.mean(), means_left_out(values))
    expected = stats.ttest_1samp(values.reshape(10, 20).mean(1), 0).confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high), rel=1e-10)


def test_without_ten_images_there_is_no_interval():
    estimate = interval(0.5, means_left_out(RNG.random(9)))
    assert (estimate.value, estimate.low, estimate.high) == (0.5, None, None)
    assert verdict(METRICS["fd"], difference(0.5, np.full(10, np.nan), 0.1, np.full(10, np.nan))) == "cannot tell"


def test_what_two_arms_share_cancels_in_their_difference():
    shared = 10 * RNG.standard_normal(1000)
    a, b = (shared + 0.1 * RNG.standard_normal(1000) + shift for shift in (0.1, 0))
    found = compared(a, b)
    assert found.value == pytest.approx((a - b).mean(), abs=1e-12)
    assert 0 < found.low < 0.1 < found.high < 0.12
    assert interval(a.mean(), means_left_out(a)).high - a.mean() > 0.5


@pytest.mark.parametrize(
    "key, a, b, said",
    [
        ("fd", 1, 2, "better"), ("fd", 2, 1, "worse"), ("fd", 1, 1, "cannot tell"),
        ("recall", 2, 1, "better"), ("recall", 1, 2, "worse"),
        ("diversity", 0.9, 0.5, "better"), ("diversity", 1.4, 0.9, "worse"),
        ("diversity", 0.7, 1.6, "better"), ("diversity", 0.7, 1.3, "cannot tell"),
    ],
)  # fmt: skip
def test_the_verdict_knows_which_way_is_better(key, a, b, said):
    first, second = (value + 0.01 * RNG.standard_normal(1000) for value in (a, b))
    assert verdict(METRICS[key], compared(first, second)) == said


def test_equal_arms_are_no_better_than_each_other():
    assert verdict(METRICS["fd"], difference(2.0, np.full(10, 2.0), 2.0, np.full(10, 2.0))) == "cannot tell"
