import math

import pytest
import torch

from hpcddm.models import layers, mmdit
from tests.models.examples import settings


def test_patches_go_back_to_where_they_came_from():
    x = torch.randn(2, 3, 12, 12)
    tokens = layers.patchify(x, 4)
    assert tokens.shape == (2, 9, 48)
    assert torch.equal(tokens[0, 5].view(3, 4, 4), x[0, :, 4:8, 8:12])
    assert torch.equal(layers.unpatchify(tokens, 4, channels=3, size=12), x)


def test_positions_are_sines_then_cosines_of_the_column_then_of_the_row():
    row, column = 1, 2
    angles = [(column, column / 100), (row, row / 100)]
    expected = [function(angle) for pair in angles for function in (math.sin, math.cos) for angle in pair]
    torch.testing.assert_close(layers.grid_positions(3, 8)[3 * row + column], torch.tensor(expected))


def test_times_are_cosines_then_sines():
    expected = [math.cos(500), math.cos(5), math.sin(500), math.sin(5)]
    torch.testing.assert_close(layers.sinusoids(torch.tensor([500.0]), 4)[0], torch.tensor(expected))


@pytest.mark.parametrize("modulation", ["zero", "single"])
@pytest.mark.parametrize("with_text", [False, True])
def test_a_block_starts_as_the_identity(modulation, with_text):
    x, vectors = torch.randn(2, 9, 32), torch.zeros(2, 6, 32) if modulation == "single" else torch.randn(2, 32)
    prompt = layers.Prompt(torch.randn(2, 3, 32), torch.ones(2, 1, 1, 3, dtype=torch.bool))
    block = layers.TransformerBlock(settings("dit", modulation=modulation), with_text)
    assert torch.equal(block(x, vectors, prompt), x)


def test_turned_heads_know_only_how_far_they_are_apart():
    grid, width = 5, 16
    rotation = mmdit.grid_rotation(grid, width).double()
    q, k = (torch.randn(width, dtype=torch.float64).expand(1, 1, grid**2, width) for _ in range(2))
    turned = mmdit.rotate(q, rotation)
    products = (turned @ mmdit.rotate(k, rotation).transpose(2, 3)).view(grid, grid, grid, grid)
    torch.testing.assert_close(turned.norm(dim=3), q.norm(dim=3), atol=1e-6, rtol=0)
    torch.testing.assert_close(products[1:, 2:, 1:, 2:], products[:-1, :-2, :-1, :-2], atol=1e-5, rtol=0)
    assert products.flatten().unique().numel() > (2 * grid - 1) ** 2 - 1


def test_the_norm_of_queries_and_keys_bounds_what_attention_sees():
    attention = layers.Attention(settings("dit", qk_norm=True))
    q, k, _ = attention.project(1000 * torch.randn(2, 9, 32))
    for heads in (q, k):
        torch.testing.assert_close(heads.square().mean(3), torch.ones(2, 2, 9))
