"""Flow matching with no keys: what was trained by it so far must come out the same to the last bit."""

import pytest
import torch

from tests.sampling.mixtures import objective

OBJECTIVE = objective("flow_matching")


def batch(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x0, noise, prediction = torch.randn(3, 50, 2, 4, 4, generator=generator, dtype=dtype)
    return x0, noise, torch.rand(50, generator=generator, dtype=dtype), prediction


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_state_and_loss_are_the_plain_formulas_bit_for_bit(dtype):
    x0, noise, t, prediction = batch(dtype)
    time = t.view(-1, 1, 1, 1)
    assert torch.equal(OBJECTIVE.perturb(x0, noise, t), (1 - time) * x0 + time * noise)
    loss = (prediction - (noise - x0)).square().flatten(1).mean(1)
    assert torch.equal(OBJECTIVE.loss(prediction, x0, noise, t), loss)


def test_gradients_are_the_plain_formula_s_bit_for_bit():
    x0, noise, t, prediction = batch(torch.float32)
    found, wanted = (prediction.clone().requires_grad_() for _ in range(2))
    OBJECTIVE.loss(found, x0, noise, t).mean().backward()
    (wanted - (noise - x0)).square().flatten(1).mean(1).mean().backward()
    assert torch.equal(found.grad, wanted.grad)


def test_path_ends_at_data_and_noise():
    x0, noise, t, _ = batch()
    assert torch.equal(OBJECTIVE.perturb(x0, noise, torch.zeros_like(t)), x0)
    assert torch.equal(OBJECTIVE.perturb(x0, noise, torch.ones_like(t)), noise)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "linear_beta"])
def test_target_is_the_derivative_of_the_path(schedule):
    x0, noise, t, _ = batch()
    one, step, t = objective("flow_matching", schedule), 1e-6, 0.1 + 0.8 * t
    derivative = (one.perturb(x0, noise, t + step) - one.perturb(x0, noise, t - step)) / (2 * step)
    assert one.loss(derivative, x0, noise, t).max() < 1e-14
