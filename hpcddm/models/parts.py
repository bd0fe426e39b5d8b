"""The building blocks of diffusion transformers (Peebles and Xie, arXiv 2212.09748)."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.models.size import FREQUENCIES, MLP_RATIO


def patchify(x: torch.Tensor, patch: int) -> torch.Tensor:
    """Cut images (N, C, H, W) into tokens (N, H W / patch^2, C patch^2)."""
    n, c, h, w = x.shape
    x = x.view(n, c, h // patch, patch, w // patch, patch)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(n, -1, c * patch * patch)


def unpatchify(tokens: torch.Tensor, patch: int, channels: int, size: int) -> torch.Tensor:
    """Put tokens (N, size^2 / patch^2, C patch^2) together to images (N, C, size, size)."""
    grid = size // patch
    tokens = tokens.view(len(tokens), grid, grid, channels, patch, patch)
    return tokens.permute(0, 3, 1, 4, 2, 5).reshape(-1, channels, size, size)


def sinusoids(position: torch.Tensor, width: int) -> torch.Tensor:
    """Cosines and sines of positions (N,) at width / 2 frequencies from 1 down to 1/10000: (N, width)."""
    half = torch.arange(width // 2, dtype=torch.float32, device=position.device)
    angles = position.float()[:, None] * torch.exp(-math.log(10000) / (width // 2) * half)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def grid_positions(grid: int, width: int) -> torch.Tensor:
    """Fixed position embeddings of a square grid, half of the width per axis: (grid^2, width)."""
    axis = sinusoids(torch.arange(grid), width // 2)
    rows, columns = axis.repeat_interleave(grid, dim=0), axis.repeat(grid, 1)
    return torch.cat([rows, columns], dim=1)


def modulate(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Layer norm without own parameters, then scale and shift from the condition.

    x: (N, T, D); shift, scale: (N, 1, D).
    """
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), 1 + scale)


def linear(inputs: int, outputs: int, initialise: Callable = nn.init.xavier_uniform_) -> nn.Linear:
    """A linear layer with zero bias and weights from `initialise`."""
    layer = nn.Linear(inputs, outputs)
    initialise(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """softmax(q k^T / sqrt(D)) v over tokens; q, k, v: (N, heads, T, D)."""
    if q.device.type == "cpu":
        # On CPU the fused kernel's bf16 backward pass takes 5 times as long as these operators' (torch 2.13).
        return (q * q.shape[-1] ** -0.5 @ k.transpose(2, 3)).softmax(dim=3) @ v
    return F.scaled_dot_product_attention(q, k, v)


def _small(weight: torch.Tensor) -> None:
    nn.init.normal_(weight, std=0.02)


class Attention(nn.Module):
    """Multi-head self-attention over tokens (N, T, D)."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = linear(width, 3 * width)
        self.out = linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).view(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.out(attend(q, k, v).transpose(1, 2).reshape(n, tokens, width))


class Block(nn.Module):
    """A transformer block with adaLN-zero: the condition (N, D) scales, shifts and gates both halves."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(linear(width, MLP_RATIO * width), nn.GELU(), linear(MLP_RATIO * width, width))
        self.modulation = linear(width, 6 * width, nn.init.zeros_)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.modulation(condition)[:, None].chunk(6, dim=2)
        x = torch.addcmul(x, gate_a, self.attention(modulate(x, shift_a, scale_a)))
        return torch.addcmul(x, gate_m, self.mlp(modulate(x, shift_m, scale_m)))


class Trunk(nn.Module):
    """Everything of a diffusion transformer but its last layer: (x, t, classes) -> tokens and condition.

    `settings` has width, depth, heads, patch; `data` has channels, image_size, num_classes. Class number
    `num_classes` is the null class. The parameters may be bf16: inputs are cast where they enter.
    """

    def __init__(self, settings: Any, data: Any):
        super().__init__()
        width, self.patch = settings.width, settings.patch
        self.embed_patch = linear(data.channels * self.patch**2, width)
        self.embed_time = nn.Sequential(linear(FREQUENCIES, width, _small), nn.SiLU(), linear(width, width, _small))
        self.embed_class = nn.Embedding(data.num_classes + 1, width)
        _small(self.embed_class.weight)
        self.blocks = nn.ModuleList(Block(width, settings.heads) for _ in range(settings.depth))
        self.register_buffer("positions", grid_positions(data.image_size // self.patch, width), persistent=False)

    def forward(self, x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (N, C, H, W); t: (N,) in [0, 1]; classes: (N,) -> tokens (N, T, D), condition (N, D)."""
        dtype = self.embed_patch.weight.dtype
        tokens = self.embed_patch(patchify(x.to(dtype), self.patch)) + self.positions.to(dtype)
        # The angles need float32: bf16 cannot tell 1000 t = 997 from 1000.
        time = self.embed_time(sinusoids(1000 * t, FREQUENCIES).to(dtype))
        condition = F.silu(time + self.embed_class(classes))
        for block in self.blocks:
            tokens = block(tokens, condition)
        return tokens, condition
