"""What is drawn from a mixture with ideal experts and router, strategy by strategy, against the mixture itself.

Deviations are counted in standard errors of as many draws from the mixture; what is right stays below four of them.
"""

import pytest
import torch

from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.sampler import integrate
from hpcddm.sampling.step_context import SampleStream
from tests.sampling.fields import evaluation, experts_of
from tests.sampling.mixtures import Mixture

COUNT, STEPS = 4000, 16
MIXTURE = Mixture(dimension=2, clusters=4, spread=3.0)
FLOWS, NOISES = (experts_of(MIXTURE, name) for name in ("flow_matching", "epsilon"))
EXPERTS = {"FM": FLOWS, "DDPM": NOISES, "mixed": [*FLOWS[:2], *NOISES[2:]]}


def drawn(arm, experts="mixed"):
    evaluate = evaluation(steps=STEPS, solver={"name": "heun"})
    start = torch.randn(COUNT, *MIXTURE.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    field = Ensemble(EXPERTS[experts], MIXTURE.router, None, None, 0).field(arm, evaluate)
    return integrate(field, start, SampleStream(2, range(COUNT)), torch.zeros(COUNT, dtype=torch.long), evaluate)


def deviation(x):
    """By how many standard errors the worst of masses, means and second moments is off."""
    mean, covariance = MIXTURE.moments()
    second = covariance + mean[:, None] * mean
    truth = torch.cat([MIXTURE.masses, mean, second[[0, 0, 1], [0, 1, 1]]])
    errors = _statistics(MIXTURE.sample(COUNT, seed=3)[0]).std(0) / COUNT**0.5
    return ((_statistics(x).mean(0) - truth).abs() / errors).max().item()


def _statistics(x):
    """Of each image: the probabilities of its clusters, whose means are the masses; its values and their products."""
    flat, clusters = x.flatten(1), MIXTURE.posterior(x, torch.zeros(len(x), dtype=torch.float64))
    return torch.cat([clusters, flat, flat[:, [0, 0, 1]] * flat[:, [0, 1, 1]]], dim=1)


@pytest.mark.parametrize("arm", ["full", "per-trajectory"])
@pytest.mark.parametrize("experts", EXPERTS)
def test_full_and_once_draw_from_the_data(arm, experts):
    assert deviation(drawn(arm, experts)) < 4


def test_an_expert_per_step_is_right_only_if_drawn_from_the_very_posterior():
    """If x is of p_t and k of p(k | x, t), x is of p_t(x | k), which expert k's flow carries to p_s(x | k).

    So drawing anew at every step keeps the distribution, whatever the paper's networks made of it (arXiv 2501.05450,
    table 2); with any other posterior than the data's it goes wrong.
    """
    assert deviation(drawn("sample-1")) < 4
    assert deviation(drawn("sample-1-at-2")) > 12
    assert deviation(drawn("sample-1-at-0.5")) > 12
    assert deviation(drawn("top-1")) > 12
