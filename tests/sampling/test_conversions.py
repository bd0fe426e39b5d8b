import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from hpcddm.config import variants
from tests.diffusion.spaces.examples import network_data
from tests.sampling.fields import EVERY, OBJECTIVES, conversion
from tests.sampling.mixtures import Mixture, objective

NAMES = variants.list_variants("sampling/conversions")
MIXTURE = Mixture(dimension=4, clusters=2)


def batch(dtype=torch.float64, count=101, lowest=1e-3):
    """Images, noise, states of the linear path and times."""
    generator = torch.Generator().manual_seed(0)
    x0, noise = torch.randn(2, count, 1, 2, 2, generator=generator, dtype=torch.float64)
    t = torch.linspace(lowest, 1 - lowest, count, dtype=torch.float64)
    time = t.view(-1, 1, 1, 1)
    return [value.to(dtype) for value in (x0, noise, (1 - time) * x0 + time * noise, t)]


def column(*values):
    """Images of one value each."""
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1, 1)


@pytest.mark.parametrize(("name", "schedule"), EVERY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_everything_is_finite_from_end_to_end(name, schedule, dtype):
    one, t = objective(name, schedule), torch.tensor([0.0, 1e-8, 1e-4, 0.5, 1 - 1e-4, 1 - 1e-7, 1.0], dtype=dtype)
    x, prediction = torch.randn(2, len(t), 1, 2, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    lowest, highest = torch.tensor(one.schedule.range, dtype=dtype)
    for how in (*map(conversion, NAMES), conversion("snr_matched", x0_clamp=0.5)):
        y, tau = how.to_native(one, x, t)
        velocity = how.velocity(one, prediction, x, t)
        assert (tau >= lowest).all() and (tau <= highest).all()
        assert y.isfinite().all() and velocity.isfinite().all()
        assert (y.dtype, tau.dtype, velocity.dtype) == (dtype, dtype, dtype) and velocity.shape == x.shape
        assert how.is_active(one, t).all() and how.is_active(one, t).dtype == torch.bool


@pytest.mark.parametrize("conversion_name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_of_the_linear_path_is_asked_where_the_state_is(conversion_name, dtype):
    x0, noise, x, t = batch(dtype, lowest=0.0)
    one, how = objective("flow_matching"), conversion(conversion_name)
    y, tau = how.to_native(one, x, t)
    velocity = how.velocity(one, noise - x0, x, t)
    if dtype == torch.float32 and conversion_name == "snr_matched":
        assert torch.equal(y, x) and torch.equal(tau, t) and torch.equal(velocity, noise - x0)
    accuracy = 1e-5 if dtype == torch.float32 else 1e-13
    for found, wanted in ((y, x), (tau, t), (velocity, noise - x0)):
        torch.testing.assert_close(found, wanted, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize(("name", "schedule"), EVERY)
def test_snr_matched_asks_about_the_state_of_the_native_path(name, schedule):
    x0, noise, x, t = batch(lowest=0.01)
    one, how = objective(name, schedule), conversion("snr_matched")
    lowest, highest = how.valid_range(one)
    known = ((t >= lowest) & (t <= highest)).view(-1, 1, 1, 1)
    y, tau = how.to_native(one, x, t)
    torch.testing.assert_close(y * known, one.perturb(x0, noise, tau) * known, rtol=1e-10, atol=1e-10)
    found = how.velocity(one, one.predict(x0, noise, tau), x, t)
    torch.testing.assert_close(found * known, (noise - x0) * known, rtol=1e-10, atol=1e-10)


def test_snr_matched_on_the_cosine_path_has_closed_forms():
    _, noise, x, t = batch()
    one, how = objective("epsilon", "cosine"), conversion("snr_matched")
    y, tau = how.to_native(one, x, t)
    torch.testing.assert_close(tau, 2 / math.pi * torch.atan2(t, 1 - t))
    scale = 1 / torch.sqrt((1 - t) ** 2 + t**2)
    torch.testing.assert_close(y, scale.view(-1, 1, 1, 1) * x)
    eps = noise + 0.1
    expected = (eps - x) / (1 - t).view(-1, 1, 1, 1)
    torch.testing.assert_close(how.velocity(one, eps, x, t), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "schedule"), EVERY)
def test_snr_matched_has_no_jump_where_a_network_ends_to_know(name, schedule):
    one, how = objective(name, schedule), conversion("snr_matched")
    for end in how.valid_range(one):
        t = torch.tensor([end - 1e-9, end, end + 1e-9], dtype=torch.float64).clamp(0, 1)
        x = MIXTURE.states(t[:1], seed=3).expand(3, *MIXTURE.shape)
        y, tau = how.to_native(one, x, t)
        velocity = how.velocity(one, MIXTURE.model(one)(y, tau), x, t)
        assert (velocity - velocity[1]).abs().max() < 1e-4


def test_above_the_highest_level_the_nearest_one_s_image_stands():
    one, how = objective("epsilon", "cosine"), conversion("snr_matched", max_time=0.9)
    x, t, eps = column(0.3, -2.0), torch.tensor([0.95, 1.0]).double(), column(0.2, 1.0)
    y, tau = how.to_native(one, x, t)
    assert tau.tolist() == pytest.approx([2 / math.pi * math.atan2(0.9, 0.1)] * 2)
    image = (x - 0.9 * eps) / 0.1
    torch.testing.assert_close(how.velocity(one, eps, x, t), (x - image) / t.view(-1, 1, 1, 1))


def test_below_the_lowest_level_the_nearest_one_s_score_stands():
    one, how = objective("x0_prediction"), conversion("snr_matched", min_time=0.1)
    x, t, image = column(0.3, -2.0), torch.tensor([0.05, 0.0]).double(), column(0.2, -1.0)
    eps = -t.view(-1, 1, 1, 1) * (0.9 * image - x) / 0.1**2
    torch.testing.assert_close(how.velocity(one, image, x, t), (eps - x) / (1 - t).view(-1, 1, 1, 1))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_only_epsilon_networks_in_low_precision_are_believed_less(name):
    one = objective(name)
    fp32, bf16 = (conversion(precision=precision) for precision in ("fp32", "bf16"))
    assert fp32.valid_range(one)[1] == (1 - 1e-3 if name == "epsilon" else 1.0)
    assert conversion(precision="fp16").valid_range(one)[1] == (0.99 if name == "epsilon" else 1.0)
    assert bf16.valid_range(one) == ((0.0, 0.97) if name == "epsilon" else fp32.valid_range(one))
    if name == "epsilon":
        assert conversion(precision="bf16", max_time=0.9).valid_range(one) == (0.0, 0.9)


@pytest.mark.parametrize(("name", "schedule"), EVERY)
def test_a_clamp_bounds_the_estimated_image_and_nothing_else(name, schedule):
    x0, noise, x, t = batch(lowest=0.02)
    one, plain = objective(name, schedule), conversion("snr_matched")
    prediction = one.predict(x0, noise, plain.to_native(one, x, t)[1])
    velocity = plain.velocity(one, prediction, x, t)
    image = x - t.view(-1, 1, 1, 1) * conversion("snr_matched", x0_clamp=0.5).velocity(one, prediction, x, t)
    torch.testing.assert_close(image, x0.clamp(-0.5, 0.5), rtol=1e-9, atol=1e-9)
    assert torch.equal(conversion("snr_matched", x0_clamp=50.0).velocity(one, prediction, x, t), velocity)


def test_skip_above_silences_epsilon_networks_only():
    how, t = conversion("snr_matched", skip_above=0.85), torch.tensor([0.1, 0.85, 0.9])
    for name in OBJECTIVES:
        expected = [True, True, name != "epsilon"]
        assert how.is_active(objective(name), t).tolist() == expected


@pytest.mark.parametrize("bound", [20.0, 1e6])
def test_as_reported_is_the_paper_s_formula(bound):
    x0, noise, x, t = batch()
    one, how = objective("epsilon", "cosine"), conversion("as_reported", x0_clamp=bound)
    y, tau = how.to_native(one, x, t)
    assert torch.equal(y, x) and torch.equal(tau, t)
    eps, time = noise + 5, t.view(-1, 1, 1, 1)
    alpha, sigma = torch.cos(math.pi / 2 * time), torch.sin(math.pi / 2 * time)
    image = ((x - sigma * eps) / alpha.clamp(min=0.01)).clamp(-bound, bound)
    assert (image.abs() == bound).any() == (bound == 20) and (alpha < 0.01).any()
    torch.testing.assert_close(how.velocity(one, eps, x, t), eps - image, rtol=1e-9, atol=1e-9)


def test_the_unpublished_scaling_is_a_factor_above_its_time():
    x0, noise, x, t = batch()
    plain, scaled = conversion("as_reported"), conversion("as_reported", high_noise_scale=0.5)
    for name, factor in (("epsilon", 0.5), ("flow_matching", 1.0)):
        one = objective(name)
        ratio = scaled.velocity(one, noise, x, t) / plain.velocity(one, noise, x, t)
        expected = torch.where(t > 0.85, factor, 1.0).double().view(-1, 1, 1, 1).expand_as(ratio)
        torch.testing.assert_close(ratio, expected)


@pytest.mark.parametrize(
    ("name", "keys", "refused"),
    [("as_reported", {}, True), ("snr_matched", {"x0_clamp": 2.0}, True), ("snr_matched", {}, False)],
)
def test_a_clamp_needs_one_posterior_for_both_halves_of_guidance(name, keys, refused):
    for guidance, posteriors in ((1.0, "separate"), (2.0, "shared"), (2.0, "separate")):
        evaluate = SimpleNamespace(guidance=guidance, posteriors=posteriors)
        is_refused = refused and (guidance, posteriors) == (2.0, "separate")
        said = pytest.raises(ValueError, match="needs 'posteriors: shared'") if is_refused else nullcontext()
        with said:
            conversion(name, **keys).settings.check(SimpleNamespace(evaluate=evaluate, data=network_data(1, 8)))
