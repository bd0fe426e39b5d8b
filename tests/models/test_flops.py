import pytest
import torch

from hpcddm.models.dit import DiT, DiTSettings
from hpcddm.models.flops import forward_flops, training_flops
from tests.diffusion.spaces.examples import network_data

DATA = network_data(1, 28)
WIDTH, DEPTH, TOKENS, PATCH, FREQUENCIES = 64, 3, 49, 16, 256


def dit_inputs(count):
    return torch.randn(count, 1, 28, 28), torch.rand(count), torch.zeros(count, dtype=torch.long)


def dit():
    return DiT(DiTSettings(name="dit", width=WIDTH, depth=DEPTH, heads=4, patch=4), DATA)


def by_hand():
    """Operations of one image forward: products per token, products between tokens, products per image."""
    per_token = 2 * PATCH * WIDTH + DEPTH * 2 * (3 + 1 + 4 + 4) * WIDTH**2 + 2 * WIDTH * PATCH
    attention = DEPTH * 2 * (2 * TOKENS * TOKENS * WIDTH)
    per_image = 2 * FREQUENCIES * WIDTH + 2 * WIDTH**2 + DEPTH * 2 * 6 * WIDTH**2 + 2 * 2 * WIDTH**2
    return TOKENS * per_token + attention + per_image


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dit_forward_equals_the_count_by_hand(dtype):
    assert forward_flops(dit().to(dtype), *dit_inputs(3)) == 3 * by_hand()


def test_training_costs_three_forwards_less_the_gradients_of_the_inputs():
    inputs_need_none = TOKENS * 2 * PATCH * WIDTH + 2 * FREQUENCIES * WIDTH
    assert training_flops(dit(), *dit_inputs(2)) == 2 * (3 * by_hand() - inputs_need_none)
