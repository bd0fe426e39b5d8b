"""The cache of networks within a bound; that images are the same wherever weights are is in models/test_networks.py."""

import pytest
import torch
from torch import nn

from hpcddm.sampling.placements.lru import WeightCache

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def networks():
    """Four networks of one size, with parameters and buffers."""
    torch.manual_seed(0)
    return {
        f"train/expert-{index:02d}": nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval().requires_grad_(False)
        for index in range(4)
    }


def cache_for(networks, room_for):
    size = sum(one.nbytes for one in next(iter(networks.values())).state_dict().values())
    return WeightCache(networks, room_for * size, torch.device("cpu"))


@pytest.mark.parametrize("room_for", [1, 2, 3, 4])
def test_a_bound_on_memory_is_kept_and_changes_no_bit(networks, room_for):
    cache = cache_for(networks, room_for)
    for key in [*networks, *reversed(networks), *networks]:
        assert torch.equal(cache.call(key, X), networks[key](X))
        assert sum(one.nbytes for copy in cache.copies.values() for one in copy.values()) <= cache.bound
    assert cache.loads == 4 if room_for == 4 else cache.loads > 4
