"""The ensemble's identity, sum_k p(k | x, t) v_k(x, t) = v(x, t), for experts of any objectives, to rounding.

Everything is in float64 on Gaussian mixtures, where experts, posterior and global velocity have closed forms
(arXiv 2501.05450, eq. 4 and app. A).
"""

import math
from functools import cache

import pytest
import torch

from tests.sampling.fields import EVERY, conversion
from tests.sampling.mixtures import Mixture, objective

EXACT = 1e-10
LOGIT = torch.linspace(math.log(1e-3 / 0.999), math.log(0.999 / 1e-3), 41, dtype=torch.float64)
GRID = torch.sigmoid(LOGIT).clamp(1e-3, 1 - 1e-3)
"""Times from 1e-3 to 1 - 1e-3, equally spaced in log-SNR."""

SIZES = [(1, 2), (2, 8), (64, 4)]
"""Dimension and clusters."""

FM, DDPM = ("flow_matching", "linear"), ("epsilon", "cosine")
MIXES = {"2DDPM:6FM": [DDPM, FM, FM, DDPM, FM, FM, FM, FM], "half and half": [DDPM, FM], "everything": EVERY}


@cache
def states(dimension, clusters):
    """A mixture, times, likely states, posterior, global velocity and each cluster's."""
    mixture, t = Mixture(dimension, clusters), GRID.repeat_interleave(6)
    x = mixture.states(t)
    return mixture, t, x, mixture.posterior(x, t), mixture.velocity(x, t)


def errors(how, dimension, clusters, experts):
    """The largest error of the ensemble at each time, and whether all experts know its level: (times,) each."""
    mixture, t, x, posterior, whole = states(dimension, clusters)
    ensemble, known = torch.zeros_like(x), torch.ones_like(t, dtype=torch.bool)
    for k in range(clusters):
        one = objective(*experts[k % len(experts)])
        y, tau = how.to_native(one, x, t)
        velocity = how.velocity(one, mixture.model(one, k)(y, tau), x, t)
        ensemble += posterior[:, k].view(-1, 1, 1, 1) * velocity
        lowest, highest = one.linear_range
        known &= (t >= lowest) & (t <= highest)
    error = (ensemble - whole).abs().flatten(1).amax(1).view(len(GRID), -1).amax(1)
    return error, known.view(len(GRID), -1)[:, 0]


@pytest.mark.parametrize(("dimension", "clusters"), SIZES)
@pytest.mark.parametrize(("name", "schedule"), EVERY)
def test_identity_where_all_experts_have_one_objective(dimension, clusters, name, schedule):
    error, known = errors(conversion("snr_matched"), dimension, clusters, [(name, schedule)])
    assert error[known].max() <= EXACT
    # All of the grid, except for the paths with a largest and a smallest level.
    assert known.all() or (schedule.startswith("linear_beta") and known.sum() >= len(GRID) / 2)


@pytest.mark.parametrize(("dimension", "clusters"), SIZES)
@pytest.mark.parametrize("mix", MIXES)
def test_identity_of_mixed_experts(dimension, clusters, mix):
    error, known = errors(conversion("snr_matched"), dimension, clusters, MIXES[mix])
    assert error[known].max() <= EXACT
    assert known.all() or mix == "everything"


def test_as_reported_is_right_when_no_expert_needs_a_conversion():
    assert max(errors(conversion("as_reported"), *size, [FM])[0].max() for size in SIZES) <= EXACT


@pytest.mark.parametrize("schedule", ["linear_beta", "linear_beta_1000"])
@pytest.mark.parametrize(("dimension", "clusters"), SIZES)
def test_outside_the_range_the_nearest_level_is_a_small_error(schedule, dimension, clusters):
    error, known = errors(conversion("snr_matched"), dimension, clusters, [("epsilon", schedule)])
    assert (~known & (GRID > 0.5)).any()
    assert error[~known].max() <= 0.1 * states(dimension, clusters)[-1].abs().max()
