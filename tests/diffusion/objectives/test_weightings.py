import itertools

import pytest
import torch

from hpcddm.config import variants
from tests.sampling.mixtures import objective

NAMES = variants.list_variants("diffusion/objectives")
SCHEDULES = variants.list_variants("diffusion/objectives/schedules")
EVERY = pytest.mark.parametrize(("name", "schedule"), list(itertools.product(NAMES, SCHEDULES)))
OTHERS = [{"name": "target_space", "prediction_type": kind} for kind in ("epsilon", "x0", "v", "velocity")]
WEIGHTINGS = [{"name": "native"}, {"name": "min_snr"}, *OTHERS]


def batch(count=60):
    generator = torch.Generator().manual_seed(0)
    x0, noise, error = torch.randn(3, count, 1, 2, 2, generator=generator, dtype=torch.float64)
    return x0, noise, error, torch.linspace(0.02, 0.98, count, dtype=torch.float64)


def native_loss(one, error, t, x0, noise):
    return one.loss(one.predict(x0, noise, t) + error, x0, noise, t)


def squared(values):
    return values.square().flatten(1).mean(1)


def test_every_weighting_is_covered():
    found = variants.list_variants("diffusion/objectives/weightings")
    assert {weighting["name"] for weighting in WEIGHTINGS} == {*found}


@EVERY
def test_weights_are_positive_and_finite_at_the_ends_too(name, schedule):
    t = torch.cat([torch.zeros(1), torch.rand(50, generator=torch.Generator().manual_seed(0)), torch.ones(1)])
    x0 = torch.zeros(len(t), 1, 2, 2)
    for weighting in WEIGHTINGS:
        one = objective(name, schedule, weighting=weighting)
        loss = one.loss(one.predict(x0, x0, t) + 1, x0, x0, t)
        assert loss.dtype == torch.float32 and loss.isfinite().all(), weighting
        assert (loss >= 0).all() and (loss[1:-1] > 0).all(), weighting


@pytest.mark.parametrize("name", NAMES)
def test_native_is_the_mean_squared_error(name):
    x0, noise, error, t = batch()
    torch.testing.assert_close(native_loss(objective(name), error, t, x0, noise), squared(error))


@EVERY
def test_target_space_is_the_error_of_the_other_prediction_type(name, schedule):
    x0, noise, error, t = batch()
    for weighting in OTHERS:
        one = objective(name, schedule, weighting=weighting)
        image, eps = one.estimate(one.perturb(x0, noise, t), t, one.predict(x0, noise, t) + error)
        of_image, of_noise, level = image - x0, eps - noise, one.level(t)
        of_v = level.alpha.view(-1, 1, 1, 1) * of_noise - level.sigma.view(-1, 1, 1, 1) * of_image
        wrong = {"x0": of_image, "epsilon": of_noise, "v": of_v, "velocity": of_noise - of_image}
        expected = squared(wrong[weighting["prediction_type"]])
        torch.testing.assert_close(native_loss(one, error, t, x0, noise), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("epsilon", lambda snr: snr.clamp(max=4) / snr),
        ("x0_prediction", lambda snr: snr.clamp(max=4)),
        ("v_prediction", lambda snr: snr.clamp(max=4) / (snr + 1)),
    ],
)
def test_min_snr_has_the_paper_s_three_forms(name, expected):
    x0, noise, error, t = batch()
    one = objective(name, "cosine", weighting={"name": "min_snr", "gamma": 4.0})
    weight = native_loss(one, error, t, x0, noise) / squared(error)
    torch.testing.assert_close(weight, expected(one.schedule.log_snr(t).exp()))
