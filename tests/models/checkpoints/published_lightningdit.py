"""LightningDiT's network with its tensors' names, written down from the paper and the public names of its parts.

Its time s runs from noise at 0 to data at 1, it embeds s itself, and it predicts data - noise.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.models.checkpoints import public

ALL = {"swiglu": True, "rms": True, "rotary": True, "qk_norm": True}


class RMS(nn.Module):
    """x / rms(x) with a gain; without a gain, and with the mean taken off, the layer norm in its place."""

    def __init__(self, width, has_gain=True):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width)) if has_gain else None

    def forward(self, x):
        if self.weight is None:
            x = x - x.mean(-1, keepdim=True)
        x = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
        return x if self.weight is None else x * self.weight


class Rotation(nn.Module):
    """Planes of neighbouring values, first those that turn with the row, then those that turn with the column."""

    def __init__(self, head, grid):
        super().__init__()
        angles = torch.zeros(grid * grid, head, dtype=torch.float64)
        for token in range(grid * grid):
            for plane in range(head // 2):
                place = token // grid if plane < head // 4 else token % grid
                angle = place * 10_000 ** (-(plane % (head // 4)) / (head // 4))
                angles[token, 2 * plane] = angles[token, 2 * plane + 1] = angle
        self.register_buffer("freqs_cos", angles.cos().float())
        self.register_buffer("freqs_sin", angles.sin().float())

    def forward(self, x):
        a, b = x[..., 0::2], x[..., 1::2]
        cos, sin = self.freqs_cos.to(x.dtype)[:, ::2], self.freqs_sin.to(x.dtype)[:, ::2]
        turned = torch.empty_like(x)
        turned[..., 0::2], turned[..., 1::2] = a * cos - b * sin, b * cos + a * sin
        return turned


class Attention(nn.Module):
    """Fused projection: queries, keys and values, each head by head."""

    def __init__(self, width, heads, qk_norm):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q_norm = RMS(width // heads) if qk_norm else nn.Identity()
        self.k_norm = RMS(width // heads) if qk_norm else nn.Identity()

    def forward(self, x, rotation):
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).view(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q), self.k_norm(k)
        if rotation is not None:
            q, k = rotation(q), rotation(k)
        scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).softmax(dim=3)
        return self.proj((scores @ v).transpose(1, 2).reshape(n, tokens, width))


class SwiGLU(nn.Module):
    """The first half of the hidden values passes silu."""

    def __init__(self, width):
        super().__init__()
        hidden = int(2 / 3 * int(4 * width))
        self.w12, self.w3 = nn.Linear(width, 2 * hidden), nn.Linear(hidden, width)

    def forward(self, x):
        hidden = self.w12(x)
        half = hidden.shape[-1] // 2
        return self.w3(hidden[..., :half].sigmoid() * hidden[..., :half] * hidden[..., half:])


class Gelu(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


def modulated(x, shift, scale):
    return x * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    def __init__(self, width, heads, swiglu, rms, qk_norm):
        super().__init__()
        self.norm1, self.norm2 = RMS(width, rms), RMS(width, rms)
        self.attn, self.mlp = Attention(width, heads, qk_norm), SwiGLU(width) if swiglu else Gelu(width)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, c, rotation):
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = self.adaLN_modulation(c).chunk(6, dim=1)
        x = x + gate[:, None] * self.attn(modulated(self.norm1(x), shift, scale), rotation)
        return x + gate_mlp[:, None] * self.mlp(modulated(self.norm2(x), shift_mlp, scale_mlp))


class Final(nn.Module):
    def __init__(self, width, outputs, rms):
        super().__init__()
        self.norm_final, self.linear = RMS(width, rms), nn.Linear(width, outputs)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))

    def forward(self, x, c):
        return self.linear(modulated(self.norm_final(x), *self.adaLN_modulation(c).chunk(2, dim=1)))


class Published(nn.Module):
    """The whole network; `sigma` doubles the outputs, of whose halves the first one is the velocity."""

    def __init__(self, patch=2, swiglu=True, rms=True, rotary=True, qk_norm=False, sigma=False, seed=0):
        super().__init__()
        width, self.patch, self.outputs = public.WIDTH, patch, (1 + sigma) * public.CHANNELS
        self.x_embedder, self.y_embedder, self.t_embedder = nn.Module(), nn.Module(), nn.Module()
        self.x_embedder.proj = nn.Conv2d(public.CHANNELS, width, patch, stride=patch)
        self.y_embedder.embedding_table = nn.Embedding(public.NUM_CLASSES + 1, width)
        self.t_embedder.mlp = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        parts = {"swiglu": swiglu, "rms": rms, "qk_norm": qk_norm}
        self.blocks = nn.ModuleList(Block(width, public.HEADS, **parts) for _ in range(public.DEPTH))
        self.final_layer = Final(width, patch**2 * self.outputs, rms)
        self.grid = public.SIDE // patch
        self.feat_rope = Rotation(width // public.HEADS, self.grid) if rotary else None
        self.pos_embed = nn.Parameter(public.positions(self.grid).float(), requires_grad=False)
        self.eval().requires_grad_(False)
        generator = torch.Generator().manual_seed(seed)
        for name, values in self.named_parameters():
            if name != "pos_embed":
                fan_in = values[0].numel() if values.dim() > 1 else 4
                values.copy_(torch.randn(values.shape, generator=generator) / math.sqrt(2 * fan_in))
                values.add_(1 if "norm" in name else 0)

    def forward(self, x, s, classes):
        tokens = self.x_embedder.proj(x).flatten(2).transpose(1, 2) + self.pos_embed.to(x.dtype)
        angles = s[:, None] * torch.exp(-math.log(10_000) * torch.arange(128, dtype=s.dtype) / 128)
        condition = self.t_embedder.mlp(torch.cat([angles.cos(), angles.sin()], dim=1).to(x.dtype))
        condition = condition + self.y_embedder.embedding_table(classes)
        for block in self.blocks:
            tokens = block(tokens, condition, self.feat_rope)
        patches = self.final_layer(tokens, condition)
        patches = patches.view(len(x), self.grid, self.grid, self.patch, self.patch, self.outputs)
        return patches.permute(0, 5, 1, 3, 2, 4).reshape(len(x), self.outputs, *x.shape[2:])[:, : public.CHANNELS]
