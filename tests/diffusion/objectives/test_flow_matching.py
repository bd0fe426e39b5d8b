"""Flow matching with no keys: what was trained by it so far must come out the same to the last bit."""

import pytest
import torch

from tests.sampling.mixtures import objective


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_state_loss_and_gradients_are_the_plain_formulas_bit_for_bit(dtype):
    one, generator = objective("flow_matching"), torch.Generator().manual_seed(0)
    x0, noise, prediction = torch.randn(3, 50, 2, 4, 4, generator=generator, dtype=dtype)
    t = torch.rand(50, generator=generator, dtype=dtype)
    t[:2] = torch.tensor([0.0, 1.0])
    time = t.view(-1, 1, 1, 1)
    assert torch.equal(one.perturb(x0, noise, t), (1 - time) * x0 + time * noise)
    found, wanted = (prediction.clone().requires_grad_() for _ in range(2))
    losses = one.loss(found, x0, noise, t), (wanted - (noise - x0)).square().flatten(1).mean(1)
    assert torch.equal(*losses)
    for loss in losses:
        loss.mean().backward()
    assert torch.equal(found.grad, wanted.grad)
