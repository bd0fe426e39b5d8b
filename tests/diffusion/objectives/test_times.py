import math

import pytest
import torch

from hpcddm.config import variants
from tests.sampling.mixtures import objective

UNIFORM = torch.arange(20_000) / 20_000
SCHEDULES = variants.list_variants("diffusion/objectives/schedules")


@pytest.mark.parametrize("times", variants.list_variants("diffusion/objectives/times"))
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("shift", [1.0, 3.0, 0.5])
def test_times_rise_and_stay_in_the_range(times, schedule, shift):
    one = objective("epsilon", schedule, times={"name": times}, shift=shift)
    extremes = torch.cat([torch.zeros(1), UNIFORM[1:], torch.tensor([1 - 2**-24])])
    t = one.training_times(extremes)
    lowest, highest = torch.tensor(one.schedule.range)
    assert t.dtype == torch.float32 and (t.diff() >= 0).all()
    assert t.min() >= lowest and t.max() <= highest and t.max() - t.min() > 0.7


def test_flow_matching_takes_the_numbers_themselves():
    assert torch.equal(objective("flow_matching").training_times(UNIFORM), UNIFORM)


def test_logit_normal_has_its_mean_and_spread():
    t = objective("flow_matching", times={"name": "logit_normal", "mean": 0.5, "std": 0.8}).training_times(UNIFORM[1:])
    logit = (t.double() / (1 - t.double())).log()
    assert logit.mean().item() == pytest.approx(0.5, abs=0.01) and logit.std().item() == pytest.approx(0.8, abs=0.01)


def test_discrete_times_are_the_table_s_levels_equally_often():
    t = objective("epsilon", "linear_beta_1000", times={"name": "discrete"}).training_times(UNIFORM)
    level, count = (1000 * t).round().unique(return_counts=True)
    assert torch.equal(level, torch.arange(1000.0)) and (count - 20).abs().max() <= 1
    torch.testing.assert_close(t, (1000 * t).round() / 1000, rtol=1e-6, atol=0)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("shift", [3.0, 0.5])
def test_shift_lowers_the_log_snr(schedule, shift):
    plain, moved = (objective("epsilon", schedule, shift=s) for s in (1.0, shift))
    u = torch.linspace(0.2, 0.8, 50, dtype=torch.float64)
    difference = moved.schedule.log_snr(moved.training_times(u)) - plain.schedule.log_snr(plain.training_times(u))
    torch.testing.assert_close(difference, torch.full_like(u, -2 * math.log(shift)), rtol=1e-9, atol=1e-9)
