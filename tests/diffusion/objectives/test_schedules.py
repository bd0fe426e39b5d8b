import math

import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.objectives import ScheduleSettings
from hpcddm.diffusion.objectives.schedules.base import Schedule, log_snr_differences
from tests.sampling.mixtures import PATHS

DOUBLE = {"dtype": torch.float64}
NAMES = variants.list_variants("diffusion/objectives/schedules")


def schedule(name, **keys):
    return variants.create(Schedule, ScheduleSettings.model_validate({"name": name} | keys))


def inside(name, count=400):
    """Times of the schedule's range on the linear path's grid 1e-3 ... 1 - 1e-3, all levels of noise alike."""
    one = schedule(name)
    odds = torch.linspace(math.log(1e-3 / 0.999), math.log(0.999 / 1e-3), count, **DOUBLE)
    t = one.time_at(-2 * odds)
    return t[(t > one.range[0]) & (t < one.range[1])]


def test_every_schedule_has_formulas_of_the_tests_own():
    assert set(NAMES) == set(PATHS)


@pytest.mark.parametrize("name", NAMES)
def test_alpha_and_sigma_are_the_formulas(name):
    t = inside(name)
    level = schedule(name).level(t)
    for value, own in zip(level, PATHS[name](t), strict=False):
        torch.testing.assert_close(value, own, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_those_of_alpha_and_sigma(name):
    t = inside(name).requires_grad_()
    level = schedule(name).level(t)
    for value, derivative in ((level.alpha, level.d_alpha), (level.sigma, level.d_sigma)):
        (found,) = torch.autograd.grad(value.sum(), t, retain_graph=True)
        torch.testing.assert_close(derivative, found, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_log_snr_falls_and_is_that_of_alpha_and_sigma(name):
    t, one = inside(name), schedule(name)
    level, log_snr = one.level(t), one.log_snr(t)
    torch.testing.assert_close(log_snr, 2 * (level.alpha / level.sigma).log(), rtol=1e-11, atol=1e-11)
    assert (log_snr.diff() < 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_time_at_is_the_inverse_of_log_snr(name):
    t, one = inside(name), schedule(name)
    torch.testing.assert_close(one.time_at(one.log_snr(t)), t, rtol=1e-12, atol=1e-14)
    log_snr = torch.linspace(-9, 9, 101, **DOUBLE)
    torch.testing.assert_close(one.log_snr(one.time_at(log_snr)), log_snr, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_ends_are_finite_and_never_left(name, dtype):
    one, ends = schedule(name), torch.tensor([0.0, 1.0], dtype=dtype)
    assert all(value.isfinite().all() and value.dtype == dtype for value in one.level(ends))
    beyond = one.time_at(torch.tensor([math.inf, 50.0, -50.0, -math.inf], dtype=dtype))
    lowest, highest = torch.tensor(one.range, dtype=dtype)
    assert (beyond >= lowest).all() and (beyond <= highest).all() and beyond.dtype == dtype
    assert torch.equal(beyond[[0, 3]], torch.stack([lowest, highest]))


def test_the_table_spans_what_is_told_of_it():
    ends = schedule("linear_beta_1000").log_snr(torch.tensor([0.0, 0.999], **DOUBLE))
    assert (1 / (1 + torch.exp(ends / 2))).tolist() == pytest.approx([0.0099, 0.9937], abs=5e-5)


def test_beta_can_be_set():
    level = schedule("linear_beta", beta_min=1.0, beta_max=3.0).level(torch.tensor([0.5], **DOUBLE))
    assert level.alpha.item() == pytest.approx(math.exp(-(0.5 + 0.25) / 2))


def table_log_snr(t):
    """Log-SNR of DDPM's table at whole steps t = i / 1000."""
    kept = math.prod(1 - (1e-4 + (0.02 - 1e-4) * level / 999) for level in range(round(1000 * t) + 1))
    return math.log(kept / (1 - kept))


def beta_log_snr(t, least, most):
    """Log-SNR where alpha^2 = exp(-B) and B is the integral of a beta that rises from `least` to `most`."""
    return -math.log(math.expm1(least * t + (most - least) * t**2 / 2))


LOG_SNRS = {
    ("linear", ()): lambda t: 2 * math.log((1 - t) / t),
    ("cosine", ()): lambda t: -2 * math.log(math.tan(math.pi * t / 2)),
    ("linear_beta", ()): lambda t: beta_log_snr(t, 0.1, 20),
    ("linear_beta", (("beta_max", 12),)): lambda t: beta_log_snr(t, 0.1, 12),
    ("linear_beta_1000", ()): table_log_snr,
}


@pytest.mark.parametrize("here", LOG_SNRS)
@pytest.mark.parametrize("there", LOG_SNRS)
def test_log_snr_moves_as_the_closed_forms_of_both_paths_say(there, here):
    paths = [ScheduleSettings.model_validate({"name": name, **dict(given)}) for name, given in (there, here)]
    times = [0.001, 0.1, 0.25, 0.5, 0.731, 0.9, 0.999]
    found = log_snr_differences(*paths, torch.tensor(times, dtype=torch.float64))
    expected = torch.tensor([LOG_SNRS[here](t) - LOG_SNRS[there](t) for t in times], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert (there == here) == (not found.any())
