import numpy as np
import pytest
import torch

from hpcddm.randomness import keyed


def test_a_sample_does_not_depend_on_its_batch():
    whole = keyed.gaussian(3, "noise", range(10, 20), (2, 4, 4))
    assert torch.equal(keyed.gaussian(3, "noise", [17, 12], (2, 4, 4)), whole[[7, 2]])
    assert torch.equal(keyed.uniform(3, "time", [17, 12]), keyed.uniform(3, "time", range(10, 20))[[7, 2]])


@pytest.mark.parametrize("other", [(4, "noise", 0), (3, "time", 0), (3, "noise", 1), (3, "noise", 2**40)])
def test_seed_stream_and_index_give_unrelated_numbers(other):
    seed, stream, index = other
    first = keyed.gaussian(3, "noise", [0], (4096,))[0]
    second = keyed.gaussian(seed, stream, [index], (4096,))[0]
    # A handful of float32 values coincide by chance; shared generator blocks would coincide by hundreds.
    assert len(set(first.tolist()) & set(second.tolist())) < 20
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 0.08


def test_the_numbers_are_the_same_in_every_process():
    drawn = keyed.gaussian(0, "noise", [5], (3,))[0]
    torch.testing.assert_close(drawn, torch.tensor([-0.4158373, -0.1129862, 0.4531933]), rtol=0, atol=1e-6)
    times = keyed.uniform(0, "time", [5, 6])
    torch.testing.assert_close(times, torch.tensor([0.3861436, 0.2471425]), rtol=0, atol=1e-6)
    assert keyed.random_subset(0, "order", 6, 6).tolist() == [3, 5, 0, 4, 1, 2]


def test_moments():
    drawn = keyed.gaussian(1, "noise", range(500), (400,)).double()
    assert abs(drawn.mean()) < 0.01
    assert abs(drawn.var() - 1) < 0.015
    assert abs((drawn**4).mean() - 3) < 0.1
    uniform = keyed.uniform(1, "time", range(20000)).double()
    assert 0 <= uniform.min() and uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(uniform.var() - 1 / 12) < 0.002


def test_chosen_numbers_come_once_and_depend_on_seed_and_stream():
    order = keyed.random_subset(0, "order", 1000, 2000)
    assert np.array_equal(np.sort(order), np.arange(1000))
    assert np.array_equal(keyed.random_subset(0, "order", 1000, 10), order[:10])
    assert not np.array_equal(order, keyed.random_subset(1, "order", 1000, 1000))
    assert not np.array_equal(order, keyed.random_subset(0, "epoch 2", 1000, 1000))
    assert keyed.random_subset(0, "order", 4 * 10**8, 3).max() > 10**6
