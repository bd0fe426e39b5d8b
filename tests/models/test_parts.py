import pytest
import torch
import torch.nn.functional as F

from hpcddm.models import parts


def test_patches_go_back_to_where_they_came_from():
    x = torch.randn(2, 3, 12, 12)
    tokens = parts.patchify(x, 4)
    assert tokens.shape == (2, 9, 48)
    assert torch.equal(tokens[0, 5].view(3, 4, 4), x[0, :, 4:8, 8:12])
    assert torch.equal(parts.unpatchify(tokens, 4, channels=3, size=12), x)


def test_positions_of_a_grid_differ():
    positions = parts.grid_positions(7, 64)
    assert positions.shape == (49, 64)
    assert (torch.cdist(positions, positions) + torch.eye(49)).min() > 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_on_cpu_is_torchs_attention(dtype):
    q, k, v = torch.randn(3, 2, 4, 9, 16, dtype=dtype)
    torch.testing.assert_close(parts.attend(q, k, v), F.scaled_dot_product_attention(q, k, v))


def test_a_block_starts_as_the_identity():
    x, condition = torch.randn(2, 9, 32), torch.randn(2, 32)
    assert torch.equal(parts.Block(32, heads=4)(x, condition), x)
