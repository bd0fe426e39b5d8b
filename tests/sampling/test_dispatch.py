import pytest
import torch

from hpcddm.sampling.dispatch import weighted_velocity


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
    routing_weights = torch.rand(12, 5, generator=generator, dtype=torch.float64) * torch.tensor(used)
    return routing_weights * (torch.rand(12, 5, generator=generator) < 0.5)


def experts():
    return [Recorder(factor) for factor in (1.0, -2.0, 0.5, 3.0, 7.0)]


def dense(experts, routing_weights, *inputs):
    return sum(routing_weights[:, k].view(-1, 1, 1, 1) * expert(*inputs) for k, expert in enumerate(experts))


@pytest.mark.parametrize("used", [(1, 1, 1, 1, 1), (1, 0, 1, 0, 1), (0, 0, 0, 1, 0), (0, 0, 0, 0, 0)])
def test_equals_the_dense_sum_and_asks_for_nothing_else(used):
    some, routing_weights, inputs = experts(), sparse_weights(used), batch()
    grouped = weighted_velocity(some, routing_weights, *inputs)
    calls = [list(expert.calls) for expert in some]
    assert (grouped - dense(some, routing_weights, *inputs)).abs().max() <= 1e-10
    for asked, column in zip(calls, routing_weights.unbind(1), strict=True):
        wanted = column.nonzero().flatten().tolist()
        assert asked == ([wanted] if wanted else [])


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_dense_sum_for_any_assignment_and_order(seed):
    generator = torch.Generator().manual_seed(seed)
    some, inputs = experts(), batch()
    # Any weights, negative ones too, and one expert for each sample.
    routing_weights = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    routing_weights *= torch.rand(12, 5, generator=generator) < torch.rand(1, generator=generator)
    hard = torch.eye(5, dtype=torch.float64)[torch.randint(5, (12,), generator=generator)]
    order, numbers = torch.randperm(12, generator=generator), torch.randperm(5, generator=generator)
    for given in (routing_weights, hard):
        expected = dense(some, given, *inputs)
        assert (weighted_velocity(some, given, *inputs) - expected).abs().max() <= 1e-10
        others = [some[k] for k in numbers]
        shuffled = weighted_velocity(others, given[order][:, numbers], *(one[order] for one in inputs))
        assert (shuffled - expected[order]).abs().max() <= 1e-10
