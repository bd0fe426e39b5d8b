"""Power-function averages: their lengths, their profiles, and others made of them."""

import numpy as np
import pytest

from hpcddm.training.ema import Profile, coefficients, exponent, power_update_weight

TIMES = np.linspace(0, 100, 20_001)


def density(profile):
    """The weights over time of an average, as a function of images."""
    relative = TIMES / profile.images
    return np.where(relative <= 1, (profile.gamma + 1) * relative**profile.gamma / profile.images, 0)


@pytest.mark.parametrize("sigma_rel", [0.01, 0.05, 0.1, 0.25, 0.279])
def test_the_exponent_gives_the_length(sigma_rel):
    weights = density(Profile(exponent(sigma_rel), 100))
    mean = np.trapezoid(weights * TIMES, TIMES)
    deviation = np.sqrt(np.trapezoid(weights * (TIMES - mean) ** 2, TIMES))
    assert deviation / 100 == pytest.approx(sigma_rel, rel=1e-4)


def test_updates_step_by_step_make_the_profile():
    gamma, batch, steps = exponent(0.1), 8, 500
    shares = np.zeros(steps)
    for step in range(steps):
        weight = power_update_weight(gamma, batch * (step + 1), batch)
        shares *= 1 - weight
        shares[step] = weight
    # A step's share is the integral of the profile over its images.
    edges = (np.arange(steps + 1) / steps) ** (gamma + 1)
    assert np.allclose(shares, np.diff(edges), atol=1e-12) and shares.sum() == pytest.approx(1)


KEPT = [Profile(exponent(sigma_rel), images) for images in range(10, 101, 10) for sigma_rel in (0.05, 0.1)]


@pytest.mark.parametrize("sigma_rel, error", [(0.05, 1e-9), (0.1, 1e-9), (0.075, 0.009), (0.15, 0.023), (0.2, 0.054)])
def test_what_was_kept_adds_up_to_other_lengths(sigma_rel, error):
    wanted = Profile(exponent(sigma_rel), 100)
    factors = coefficients(KEPT, wanted)
    aim, kept = density(wanted), np.stack([density(profile) for profile in KEPT])

    def mismatch(factors):
        return np.trapezoid((np.array(factors) @ kept - aim) ** 2, TIMES)

    assert np.sqrt(mismatch(factors) / np.trapezoid(aim**2, TIMES)) <= error
    # No other factors are nearer, of those whose sum is 1 as well.
    assert sum(factors) == pytest.approx(1)
    for place in range(1, len(KEPT), 3):
        for by in (-0.01, 0.01):
            others = [factors[0] - by, *factors[1:place], factors[place] + by, *factors[place + 1 :]]
            assert mismatch(others) >= mismatch(factors)
