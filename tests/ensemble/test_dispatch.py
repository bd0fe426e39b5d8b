import pytest
import torch

from hpcddm.ensemble.dispatch import weighted_velocity


class Recorder:
    """An expert that multiplies by a number and remembers which samples it was asked about."""

    def __init__(self, factor):
        self.factor, self.calls = factor, []

    def __call__(self, x, t, classes):
        self.calls.append(classes.tolist())
        return self.factor * x * t.view(-1, 1, 1, 1) + classes.view(-1, 1, 1, 1)


def batch(count=12):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 2, 3, 3, generator=generator, dtype=torch.float64)
    return x, torch.rand(count, generator=generator, dtype=torch.float64), torch.arange(count)


def sparse_weights(used):
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(12, 5, generator=generator, dtype=torch.float64) * torch.tensor(used)
    return weights * (torch.rand(12, 5, generator=generator) < 0.5)


@pytest.mark.parametrize("used", [(1, 1, 1, 1, 1), (1, 0, 1, 0, 1), (0, 0, 0, 1, 0), (0, 0, 0, 0, 0)])
def test_equals_the_dense_sum_and_asks_for_nothing_else(used):
    experts = [Recorder(factor) for factor in (1.0, -2.0, 0.5, 3.0, 7.0)]
    weights, inputs = sparse_weights(used), batch()
    grouped = weighted_velocity(experts, weights, *inputs)
    calls = [list(expert.calls) for expert in experts]
    dense = sum(weights[:, k].view(-1, 1, 1, 1) * expert(*inputs) for k, expert in enumerate(experts))
    torch.testing.assert_close(grouped, dense, rtol=1e-13, atol=1e-13)
    for asked, column in zip(calls, weights.unbind(1), strict=True):
        wanted = column.nonzero().flatten().tolist()
        assert asked == ([wanted] if wanted else [])
