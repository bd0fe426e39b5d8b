"""The natural posterior from a router that saw all clusters equally often, and temperatures."""

import numpy as np
import pytest
import torch
from torch import nn

from hpcddm.data.orders.base import ListOrder, RoundRobin
from hpcddm.models.calibrated_router import CalibratedRouter
from tests.orders import uniform

RNG = np.random.default_rng(0)
COUNTS = np.array([210, 70, 14])
SHARES = [(0.9, 0.1), (0.5, 0.5), (0.2, 0.8)]
"""Of the classes, in each cluster."""
CLUSTERS = np.repeat(np.arange(3), COUNTS)
LABELS = np.concatenate([RNG.choice(2, n, p=p) for n, p in zip(COUNTS, SHARES, strict=True)])
IMAGES = (CLUSTERS + RNG.choice(4, len(CLUSTERS))) % 5
"""Every 'image' is one of five; classes and images are differently frequent in every cluster."""
NULL = 2


class Counted(nn.Module):
    """The router that cross-entropy leads to on a list of samples: log of how often each cluster had (x, class)."""

    def __init__(self, rows):
        super().__init__()
        counts = torch.zeros(5, 3, 3, dtype=torch.float64)
        for row in rows:
            counts[IMAGES[row], [LABELS[row], NULL], CLUSTERS[row]] += 1
        self.logits = nn.Parameter(counts.log(), requires_grad=False)

    def forward(self, x, t, classes):
        return self.logits[x.flatten().long(), classes]


def images(*numbers):
    """The images of these numbers, one pixel each."""
    return torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 1, 1)


def posterior(router):
    """p(k | x, class) for every image and class there is, the null class included."""
    x, classes = (one.flatten() for one in torch.meshgrid(torch.arange(5), torch.arange(3), indexing="ij"))
    seen = Counted(range(len(CLUSTERS))).logits[x, classes].isfinite().any(1)
    return router(images(*x), torch.full((15,), 0.5), classes).softmax(1)[seen]


def corrected(log_prior):
    # So many places that every sample of every cluster comes equally often.
    lists = [np.flatnonzero(CLUSTERS == cluster) for cluster in range(3)]
    order = RoundRobin([ListOrder(rows, uniform(0, f"s/{cluster}", len(rows))) for cluster, rows in enumerate(lists)])
    return CalibratedRouter(Counted(order.sample_numbers(range(3 * 210))), log_prior, [0.0, 1.0], [1.0, 1.0])


def test_the_log_prior_makes_a_balanced_router_the_natural_one_with_and_without_a_class():
    natural = posterior(Counted(range(len(CLUSTERS))))
    router = corrected([0.0, 0.0, 0.0])
    assert (posterior(router) - natural).abs().max() > 0.2
    router.log_prior = torch.from_numpy(COUNTS / COUNTS.sum()).log()
    torch.testing.assert_close(posterior(router), natural, rtol=0, atol=1e-12)


def _natural():
    return Counted(range(len(CLUSTERS)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_temperatures_are_interpolated_in_time_and_constant_outside(dtype):
    router = CalibratedRouter(_natural(), [0.0] * 3, [0.2, 0.4, 0.8], [1.0, 3.0, 2.0])
    t = torch.tensor([0.0, 0.2, 0.25, 0.4, 0.6, 0.8, 1.0], dtype=dtype)
    expected = torch.tensor([1.0, 1.0, 1.5, 3.0, 2.5, 2.0, 2.0], dtype=torch.float32)
    torch.testing.assert_close(router.temperature(t).float(), expected)


def test_the_prior_is_part_of_what_the_temperature_divides():
    router = CalibratedRouter(_natural(), [1.0, 0.0, -2.0], [0.0, 1.0], [1.0, 3.0])
    x, t, classes = images(0, 1), torch.tensor([0.0, 0.5]), torch.tensor([NULL, NULL])
    expected = (_natural()(x, t, classes) + torch.tensor([1.0, 0.0, -2.0])) / torch.tensor([[1.0], [2.0]])
    torch.testing.assert_close(router(x, t, classes), expected.to(torch.float64))
