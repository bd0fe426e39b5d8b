import torch

from hpcddm.models import layers
from tests.models.examples import settings


def test_turned_heads_know_only_how_far_they_are_apart():
    grid, width = 5, 16
    rotation = layers.grid_rotation(grid, width).double()
    q, k = (torch.randn(width, dtype=torch.float64).expand(1, 1, grid**2, width) for _ in range(2))
    turned = layers.rotate(q, rotation)
    products = (turned @ layers.rotate(k, rotation).transpose(2, 3)).view(grid, grid, grid, grid)
    torch.testing.assert_close(turned.norm(dim=3), q.norm(dim=3), atol=1e-6, rtol=0)
    torch.testing.assert_close(products[1:, 2:, 1:, 2:], products[:-1, :-2, :-1, :-2], atol=1e-5, rtol=0)
    assert products.flatten().unique().numel() > (2 * grid - 1) ** 2 - 1


def test_the_norm_of_queries_and_keys_bounds_what_attention_sees():
    attention = layers.Attention(settings("dit", qk_norm=True))
    q, k, _ = attention.project(1000 * torch.randn(2, 9, 32))
    for heads in (q, k):
        torch.testing.assert_close(heads.square().mean(3), torch.ones(2, 2, 9))
