"""Everything that every objective on every schedule owes: exact targets, exact conversions, finite ends."""

import itertools

import pytest
import torch

from hpcddm.config import variants
from hpcddm.diffusion.objectives import conversions
from tests.sampling.mixtures import FORMS, objective, path

NAMES = variants.list_variants("diffusion/objectives")
SCHEDULES = variants.list_variants("diffusion/objectives/schedules")
EVERY = pytest.mark.parametrize(("name", "schedule"), list(itertools.product(NAMES, SCHEDULES)))


def batch(one, count=200, dtype=torch.float64):
    """Images, noise and native times whose levels are spread over the linear path's 1e-3 ... 1 - 1e-3."""
    generator = torch.Generator().manual_seed(0)
    x0, noise = torch.randn(2, count, 2, 3, 3, generator=generator, dtype=torch.float64)
    linear = torch.sigmoid(torch.linspace(-6.906, 6.906, count, dtype=torch.float64))
    t = one.schedule.time_at(2 * ((1 - linear) / linear).log())
    return x0.to(dtype), noise.to(dtype), t.to(dtype)


@EVERY
def test_perturb_and_predict_are_the_formulas(name, schedule):
    one = objective(name, schedule)
    x0, noise, t = batch(one)
    alpha, sigma, *derivatives = path(one, t)
    cx, ce = (torch.as_tensor(c).view(-1, 1, 1, 1) for c in FORMS[name](alpha, sigma, *derivatives))
    alpha, sigma = alpha.view(-1, 1, 1, 1), sigma.view(-1, 1, 1, 1)
    torch.testing.assert_close(one.perturb(x0, noise, t), alpha * x0 + sigma * noise, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(one.predict(x0, noise, t), cx * x0 + ce * noise, rtol=1e-10, atol=1e-10)


@EVERY
def test_the_ideal_prediction_tells_image_and_noise_and_costs_nothing(name, schedule):
    one = objective(name, schedule)
    x0, noise, t = batch(one)
    ideal = one.predict(x0, noise, t)
    found = one.estimate(one.perturb(x0, noise, t), t, ideal)
    for value, wanted in zip(found, (x0, noise), strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-10, atol=1e-10)
    assert one.loss(ideal, x0, noise, t).abs().max() == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_conversion_is_the_other_quantity(schedule):
    one = objective("epsilon", schedule)
    x0, noise, t = batch(one)
    x, level = one.perturb(x0, noise, t), one.level(t)
    quantities = {kind: conversions.predict(kind, level, x0, noise) for kind in conversions.LINEAR_FORMS}
    for (source, given), (target, wanted) in itertools.product(quantities.items(), repeat=2):
        found = conversions.convert(source, target, level, x, given)
        # Relative: the velocity of a path may be large (beta of the table's first level).
        assert ((found - wanted).abs() <= 1e-10 * wanted.abs().clamp(min=1)).all(), (source, target)
        assert source != target or torch.equal(found, given)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_ends_are_finite(name, schedule, dtype):
    one = objective(name, schedule)
    t = torch.tensor([0.0, 1e-7, 1 - 1e-7, 1.0], dtype=dtype)
    x0, noise, prediction = torch.randn(3, 4, 1, 2, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    x = one.perturb(x0, noise, t)
    for value in (x, one.predict(x0, noise, t), *one.estimate(x, t, prediction)):
        assert value.isfinite().all() and value.dtype == dtype


@EVERY
def test_a_network_is_blind_where_its_prediction_leaves_the_other_half_open(name, schedule):
    one = objective(name, schedule)
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    level = one.level(ends)
    # At an end where alpha and sigma are not both above zero: the image (t = 1) or the noise (t = 0).
    share = (conversions.determinant(one.prediction_type, level) / conversions.determinant("velocity", level)).abs()
    for end, value, least in zip((0.0, 1.0), share, (level.sigma[0], level.alpha[1]), strict=True):
        if least == 0:
            assert (value == 0) == (one.blind_at == end)


def test_float32_loses_nothing_near_the_ends():
    one = objective("epsilon", "cosine")
    x0, noise, t = batch(one, dtype=torch.float32)
    x = one.perturb(x0.double(), noise.double(), t)
    found, _ = one.estimate(x, t, noise.double())
    torch.testing.assert_close(found, x0.double(), rtol=1e-9, atol=1e-9)
