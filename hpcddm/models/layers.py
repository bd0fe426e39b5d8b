"""Layers and blocks of diffusion transformers (Peebles and Xie, arXiv 2212.09748)."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Float64
from torch import Tensor, nn

from hpcddm.config.models import BLOCK_VECTORS, FREQUENCIES, MLP_RATIO, SWIGLU_RATIO, TransformerSettings

Tokens = Float[Tensor, "n t d"]
Heads = Float[Tensor, "n heads t d"]
Vector = Float[Tensor, "n 1 d"]
"""Shift, scale or gate of the tokens of every image."""
Conditions = Float[Tensor, "n d"] | Float[Tensor, "n _ d"]
"""Condition of a layer for adaLN-zero, or the vectors that layers share for adaLN-single."""

MAX_PERIOD = 10000
"""Base of the frequencies: the slowest sine of an embedding has a period of nearly 2 pi times this value."""


def patchify(
    x: Float[Tensor, "n c h w"], patch: int
) -> Float[Tensor, "n {x.shape[2]*x.shape[3]//patch**2} {x.shape[1]*patch**2}"]:
    """Cut images (N, C, H, W) into square patches, row by row; the values of a token are ordered by channel first."""
    n, c, h, w = x.shape
    x = x.view(n, c, h // patch, patch, w // patch, patch)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(n, -1, c * patch * patch)


def unpatchify(
    tokens: Float[Tensor, "n t d"], patch: int, channels: int, size: int
) -> Float[Tensor, "n {channels} {size} {size}"]:
    """Assemble tokens to images: the inverse of `patchify`.

    Args:
        tokens: (N, T, channels patch^2) tokens.
        patch: Side of the patches in pixels.
        channels: Number of channels C of the images.
        size: Side of the square images in pixels.
    """
    grid = size // patch
    tokens = tokens.view(len(tokens), grid, grid, channels, patch, patch)
    return tokens.permute(0, 3, 1, 4, 2, 5).reshape(-1, channels, size, size)


def angles(position: Float[Tensor, " n"], count: int, steps: int | None = None) -> Float[Tensor, "n {count}"]:
    """Multiply positions by `count` frequencies, in the dtype of the positions.

    The frequencies are equally spaced on a log scale and decrease from 1.

    Args:
        position: (N,) positions.
        count: Number of frequencies.
        steps: Number of frequency steps from 1 to 1/10000; by default `count`, so that the last frequency is one step
            above 1/10000.
    """
    step = torch.arange(count, dtype=position.dtype, device=position.device)
    # In the public implementations' order: of 1000 radians the last bit of a frequency is 1e-4.
    return position[:, None] * torch.exp(-math.log(MAX_PERIOD) * step / (steps or count))


def time_waves(t: Float[Tensor, " n"], spacing: str) -> Float32[Tensor, "n 256"]:
    """Compute `sinusoids` of 1000 t.

    Args:
        t: (N,) times in [0, 1].
        spacing: Spacing of the frequencies; see `TransformerSettings.time_spacing`.
    """
    return sinusoids(1000 * t, FREQUENCIES, FREQUENCIES // 2 - (spacing == "diffusers"))


def sinusoids(position: Float[Tensor, " n"], width: int, steps: int | None = None) -> Float32[Tensor, "n {width}"]:
    """Compute the cosines, then the sines, of positions (N,) at the width / 2 frequencies of `angles`."""
    angle = angles(position.float(), width // 2, steps)
    return torch.cat([angle.cos(), angle.sin()], dim=1)


def grid_axes(grid: int) -> tuple[Float64[Tensor, " {grid**2}"], Float64[Tensor, " {grid**2}"]]:
    """Return the row and the column of every token of a square grid, in row-major order."""
    axis = torch.arange(grid, dtype=torch.float64)
    return axis.repeat_interleave(grid), axis.repeat(grid)


def grid_positions(grid: int, width: int) -> Float32[Tensor, "{grid**2} {width}"]:
    """Compute the fixed position embeddings of a square grid, as in the code of the original DiT.

    One half of the width encodes the column, the other half the row; each half consists of sines, then cosines.

    Args:
        grid: Number of tokens per side.
        width: Width of the embeddings, divisible by 4.
    """
    rows, columns = (angles(axis, width // 4) for axis in grid_axes(grid))
    return torch.cat([columns.sin(), columns.cos(), rows.sin(), rows.cos()], dim=1).float()


def modulate(normalised: Tokens, shift: Vector, scale: Vector) -> Tokens:
    """Apply the scale and shift from the condition to normalised tokens."""
    return torch.addcmul(shift, normalised, 1 + scale)


def block_norm(settings: TransformerSettings) -> nn.Module:
    """Create the norm before a modulation: layer norm without parameters, or RMS norm with a gain per value."""
    if settings.block.norm == "rms":
        return nn.RMSNorm(settings.width, eps=1e-6)
    return nn.LayerNorm(settings.width, eps=1e-6, elementwise_affine=False)


def linear(inputs: int, outputs: int, initialise: Callable = nn.init.xavier_uniform_) -> nn.Linear:
    """Create a linear layer with zero bias and weights from `initialise`."""
    layer = nn.Linear(inputs, outputs)
    initialise(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def init_embedding(weight: Tensor) -> None:
    """Initialise an embedding with normal values of standard deviation 0.02."""
    nn.init.normal_(weight, std=0.02)


def embedding_table(count: int, width: int) -> nn.Embedding:
    """Create a table of `count` learned embeddings, initialised by `init_embedding`."""
    table = nn.Embedding(count, width)
    init_embedding(table.weight)
    return table


def grid_rotation(grid: int, width: int) -> Float32[Tensor, "2 {grid**2} {width//2}"]:
    """Compute the rotary cosines and sines of image tokens for one head.

    Axial rotary positions (arXiv 2104.09864, eq. 34, on two axes): half of the planes rotate with the row, half with
    the column.

    Args:
        grid: Number of tokens per side.
        width: Width of a head.
    """
    rows, columns = (angles(axis, width // 4) for axis in grid_axes(grid))
    planes = torch.cat([rows, columns], dim=1)
    return torch.stack([planes.cos(), planes.sin()]).float()


def rotate(x: Float[Tensor, "n heads t d"], rotation: Float[Tensor, "2 t d//2"]) -> Float[Tensor, "n heads t d"]:
    """Rotate heads in the planes of entries i and D / 2 + i.

    Args:
        x: (N, heads, T, D) queries or keys.
        rotation: (2, T, D / 2) cosines and sines.
    """
    (cos, sin), (a, b) = rotation, x.chunk(2, dim=3)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=3)


def attend(
    q: Float[Tensor, "n heads t d"],
    k: Float[Tensor, "n heads s d"],
    v: Float[Tensor, "n heads s d"],
    visible: Bool[Tensor, "n 1 1 s"] | None = None,
) -> Float[Tensor, "n heads t d"]:
    """Compute softmax(q k^T / sqrt(D)) v over the visible keys.

    Args:
        q: (N, heads, T, D) queries.
        k: (N, heads, S, D) keys.
        v: (N, heads, S, D) values.
        visible: (N, 1, 1, S) mask of the keys; all by default.
    """
    if q.device.type == "cpu":
        # On CPU the fused kernel's bf16 backward pass takes 5 times as long as these operators' (torch 2.13).
        return attend_unfused(q, k, v, visible)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible)


def attend_unfused(
    q: Float[Tensor, "n heads t d"],
    k: Float[Tensor, "n heads s d"],
    v: Float[Tensor, "n heads s d"],
    visible: Bool[Tensor, "n 1 1 s"] | None,
) -> Float[Tensor, "n heads t d"]:
    """Compute `attend` operator by operator, with all scores in memory."""
    scores = q * q.shape[-1] ** -0.5 @ k.transpose(2, 3)
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    return scores.softmax(dim=3) @ v


def split_heads(x: Tokens, kinds: int, heads: int) -> Float[Tensor, "{kinds} n {heads} t head"]:
    """Split projected tokens into `kinds` tensors, such as queries, keys and values, each with `heads` heads."""
    return x.view(*x.shape[:2], kinds, heads, -1).permute(2, 0, 3, 1, 4)


def merge_heads(x: Heads) -> Float[Tensor, "n t heads*d"]:
    """Concatenate the heads of every token: the inverse of `split_heads` for one kind."""
    return x.transpose(1, 2).flatten(2)


class Prompt(NamedTuple):
    """Text tokens for cross-attention or joint attention."""

    tokens: Float[Tensor, "n l d"]
    visible: Bool[Tensor, "n 1 1 l"] | None
    """Mask of the tokens that are not padding, at least one per image; None if all are visible."""


def visible_text(states: Float[Tensor, "n l d"]) -> Bool[Tensor, "n l"]:
    """Return the mask (N, L) of the states that are not padding; rows of zeros are padding."""
    visible = states.any(dim=2)
    # A softmax over nothing is NaN: of a text of padding only, one token is visible, the bias of its embedding.
    first = visible[:, :1] | ~visible.any(dim=1, keepdim=True)
    return torch.cat([first, visible[:, 1:]], dim=1)


def pooled_text(states: Float[Tensor, "n l d"], kind: str) -> Float[Tensor, "n d"]:
    """Pool the visible states of every text.

    Args:
        states: (N, L, D) states of tokens, padded with rows of zeros.
        kind: 'mean' for the mean of the visible states, 'end' for the last one.
    """
    visible = visible_text(states)
    if kind == "end":
        places = torch.arange(visible.shape[1], device=states.device) * visible
        return states[torch.arange(len(states), device=states.device), places.argmax(dim=1)]
    share = visible / visible.sum(dim=1, keepdim=True)
    return (states * share[:, :, None].to(states.dtype)).sum(dim=1)


def head_norm(settings: TransformerSettings) -> nn.Module:
    """Create the QK norm of queries or keys: RMS norm per head (arXiv 2403.03206, sec. 5.3.2), or the identity."""
    return nn.RMSNorm(settings.width // settings.heads, eps=1e-6) if settings.qk_norm else nn.Identity()


class Attention(nn.Module):
    """Linear layers of multi-head attention: `project` before and `merge` after `attend`."""

    def __init__(self, settings: TransformerSettings):
        super().__init__()
        width, self.heads = settings.width, settings.heads
        self.qkv = linear(width, 3 * width)
        self.out = linear(width, width)
        self.norm_q, self.norm_k = head_norm(settings), head_norm(settings)

    def project(self, x: Tokens) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values, each (N, heads, T, D / heads)."""
        q, k, v = split_heads(self.qkv(x), 3, self.heads)
        return self.norm_q(q), self.norm_k(k), v

    def merge(self, heads: Heads) -> Float[Tensor, "n t heads*d"]:
        """Merge the heads of every token and project them."""
        return self.out(merge_heads(heads))


class CrossAttention(nn.Module):
    """Multi-head attention from tokens to a prompt; its output starts at zero (arXiv 2310.00426, sec. 2.3)."""

    def __init__(self, settings: TransformerSettings):
        super().__init__()
        width, self.heads = settings.width, settings.heads
        self.q = linear(width, width)
        self.kv = linear(width, 2 * width)
        self.out = linear(width, width, nn.init.zeros_)
        self.norm_q, self.norm_k = head_norm(settings), head_norm(settings)

    def forward(self, x: Tokens, prompt: Prompt) -> Tokens:
        """Compute the attention of tokens (N, T, D) to the prompt."""
        (q,) = split_heads(self.q(x), 1, self.heads)
        k, v = split_heads(self.kv(prompt.tokens), 2, self.heads)
        return self.out(merge_heads(attend(self.norm_q(q), self.norm_k(k), v, prompt.visible)))


class Modulated(nn.Module):
    """A layer with `count` vectors that depend on the condition and start at zero.

    adaLN-zero: the linear layer `modulation` of the condition (arXiv 2212.09748, sec. 3.2).
    adaLN-single: a `table` added to vectors that all layers share (arXiv 2310.00426, sec. 2.3).

    Args:
        settings: Settings of the transformer.
        count: Number of vectors.
    """

    def __init__(self, settings: TransformerSettings, count: int):
        super().__init__()
        width, self.count = settings.width, count
        single = settings.modulation == "single"
        self.modulation = None if single else linear(width, count * width, nn.init.zeros_)
        self.table = nn.Parameter(torch.zeros(count, width)) if single else None

    def vectors(self, condition: Conditions) -> tuple[Vector, ...]:
        """Compute the vectors of a condition.

        Args:
            condition: (N, D) for adaLN-zero; (N, 1, D) or (N, at least `count`, D) for adaLN-single.

        Returns:
            `count` vectors, each (N, 1, D).
        """
        if self.modulation is None:
            vectors = condition[:, : self.count]
        else:
            vectors = self.modulation(condition).unflatten(1, (self.count, -1))
        if self.table is not None:
            vectors = self.table + vectors
        return vectors.chunk(self.count, dim=1)


class SwiGLU(nn.Module):
    """Gated MLP: w3(silu(w1 x) * w2 x), with w1 and w2 in one layer (arXiv 2002.05202, eq. 6)."""

    def __init__(self, width: int):
        super().__init__()
        hidden = int(SWIGLU_RATIO * width)
        self.w12, self.w3 = linear(width, 2 * hidden), linear(hidden, width)

    def forward(self, x: Tokens) -> Tokens:
        """Compute the outputs (N, T, D) of tokens."""
        gate, value = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(gate) * value)


def block_mlp(settings: TransformerSettings) -> nn.Module:
    """Create the MLP of a block."""
    width = settings.width
    if settings.block.mlp == "swiglu":
        return SwiGLU(width)
    into, out = linear(width, MLP_RATIO * width), linear(MLP_RATIO * width, width)
    return nn.Sequential(into, nn.GELU(approximate="tanh"), out)


class Stream(Modulated):
    """Layers of a block for one kind of tokens; `vectors` are shift, scale and gate of attention, then of the MLP."""

    def __init__(self, settings: TransformerSettings):
        super().__init__(settings, BLOCK_VECTORS)
        self.attention = Attention(settings)
        self.mlp = block_mlp(settings)
        self.norm_attention, self.norm_mlp = block_norm(settings), block_norm(settings)

    def project(self, x: Tokens, vectors: tuple[Vector, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values of tokens, each (N, heads, T, D / heads)."""
        shift, scale = vectors[:2]
        return self.attention.project(modulate(self.norm_attention(x), shift, scale))

    def add_attention(self, x: Tokens, heads: Float[Tensor, "n heads t head"], vectors: tuple[Vector, ...]) -> Tokens:
        """Add the gated attention output to the tokens."""
        return torch.addcmul(x, vectors[2], self.attention.merge(heads))

    def add_mlp(self, x: Tokens, vectors: tuple[Vector, ...]) -> Tokens:
        """Add the gated MLP output to the tokens."""
        shift, scale, gate = vectors[3:]
        return torch.addcmul(x, gate, self.mlp(modulate(self.norm_mlp(x), shift, scale)))


class TransformerBlock(Stream):
    """Transformer block: modulated attention and MLP; with text, cross-attention to a prompt between them.

    Args:
        settings: Settings of the transformer.
        with_text: True to add cross-attention.
    """

    def __init__(self, settings: TransformerSettings, with_text: bool):
        super().__init__(settings)
        self.cross = CrossAttention(settings) if with_text else None

    def forward(
        self,
        x: Tokens,
        condition: Conditions,
        prompt: Prompt | None = None,
        rotation: Float[Tensor, "2 t half"] | None = None,
    ) -> Tokens:
        """Compute the tokens (N, T, D) after the block.

        Args:
            x: (N, T, D) tokens.
            condition: Condition of the modulation.
            prompt: Text to which the tokens attend; None without text.
            rotation: (2, T, D / heads / 2) rotary cosines and sines; None without rotation.
        """
        vectors = self.vectors(condition)
        q, k, v = self.project(x, vectors)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        x = self.add_attention(x, attend(q, k, v), vectors)
        if self.cross is not None:
            x = x + self.cross(x, prompt)
        return self.add_mlp(x, vectors)
