"""MMDiT: image and text as two streams that attend jointly (arXiv 2403.03206, sec. 4), with rotary positions."""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor, nn

from hpcddm.config.conditions import Form
from hpcddm.config.models import LAST_VECTORS, DenoisingTransformerSettings
from hpcddm.config.shapes import NetworkData
from hpcddm.models.base import Condition, Images, Times
from hpcddm.models.dit import DiT, Embeddings
from hpcddm.models.layers import (
    Conditions,
    Modulated,
    Prompt,
    Stream,
    Tokens,
    angles,
    attend,
    grid_axes,
    head_norm,
    linear,
    modulate,
    split_heads,
)
from hpcddm.models.parameter_counts import (
    count_embeddings,
    count_head,
    count_linear,
    count_modulated,
    count_norm,
    count_stream,
)

AnyHeads = Float[Tensor, "n heads _ d"]
"""Queries, keys or values of image, text or both."""
Rotation = Float[Tensor, "2 t half"]
"""Rotary cosines and sines of image tokens, for half of a head's width."""


class Settings(DenoisingTransformerSettings):
    """Width, depth and heads of both streams, or the name of a size.

    Width 2560 and depth 30 (arXiv 2501.05450, sec. 4) with two full streams count 4.7 B parameters before any
    modulation (24 x width^2 x depth), not the 3 B they are published as. `3B` keeps the depth and has width 2048, 16
    heads of 128, adaLN-single modulation that both streams share, and no text layers behind the last joint attention.
    """

    sizes: ClassVar[dict[str, tuple[int, int, int]]] = {"3B": (2048, 30, 16)}

    size: Literal["3B"] | None = None
    modulation: Literal["zero", "single"] = "single"
    qk_norm: bool = True
    condition: Literal["given"] = "given"
    """A class is one token of the text stream, and it modulates as in DiT; of text `text_modulation` says it."""

    def check(self, experiment: Any) -> None:
        """Raise ValueError as for any transformer, and without a condition for the text stream."""
        super().check(experiment)
        if experiment.data.condition.form is Form.NONE:
            raise ValueError("mmdit needs a condition for its text stream; data.condition is none")

    def parameters(self, data: NetworkData) -> int:
        last_text = count_modulated(self, LAST_VECTORS) + count_linear(self.width, 2 * self.width) + count_norm(self)
        streams = (2 * self.depth - 1) * count_stream(self)
        return count_embeddings(self, data) + streams + last_text + count_head(self, self.outputs(data))


class LastText(Modulated):
    """Text stream of the last block: keys and values only, since its tokens are not updated."""

    def __init__(self, settings: Settings):
        super().__init__(settings, LAST_VECTORS)
        self.heads = settings.heads
        self.kv = linear(settings.width, 2 * settings.width)
        self.norm_k = head_norm(settings)

    def project(self, tokens: Tokens, condition: Conditions) -> tuple[Tensor, Tensor]:
        """Compute keys and values, each (N, heads, L, D / heads)."""
        k, v = split_heads(self.kv(modulate(tokens, *self.vectors(condition))), 2, self.heads)
        return self.norm_k(k), v


class JointBlock(nn.Module):
    """Two streams, one attention over all tokens."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.image, self.text = Stream(settings), Stream(settings)

    def forward(
        self,
        x: Float[Tensor, "n t d"],
        text: Float[Tensor, "n l d"],
        condition: Conditions,
        rotation: Rotation,
        visible: Bool[Tensor, "n 1 1 t+l"] | None,
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "n l d"]]:
        """Compute both streams after the block.

        rotation: of the image's tokens x; visible: mask of the tokens that are no padding, None where none is.
        """
        of_image, of_text = self.image.vectors(condition), self.text.vectors(condition)
        q, k, v = self.image.project(x, of_image)
        q, k, v = joined((rotate(q, rotation), rotate(k, rotation), v), self.text.project(text, of_text))
        from_image, from_text = attend(q, k, v, visible).split([x.shape[1], text.shape[1]], dim=2)
        x, text = self.image.attended(x, from_image, of_image), self.text.attended(text, from_text, of_text)
        return self.image.transformed(x, of_image), self.text.transformed(text, of_text)


class LastBlock(nn.Module):
    """A joint block that attends to the text and does not update it; called like a `JointBlock`."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.image, self.text = Stream(settings), LastText(settings)

    def forward(
        self,
        x: Float[Tensor, "n t d"],
        text: Float[Tensor, "n l d"],
        condition: Conditions,
        rotation: Rotation,
        visible: Bool[Tensor, "n 1 1 t+l"] | None,
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "n l d"]]:
        """Compute the image's tokens after the block; the text stays as it is. Arguments as those of a `JointBlock`."""
        vectors = self.image.vectors(condition)
        q, k, v = self.image.project(x, vectors)
        k, v = joined((rotate(k, rotation), v), self.text.project(text, condition))
        x = self.image.attended(x, attend(rotate(q, rotation), k, v, visible), vectors)
        return self.image.transformed(x, vectors), text


class TwoStreams(Embeddings):
    """Everything but the last layer: joint blocks over the tokens of image and text."""

    rotation: Tensor

    def __init__(self, settings: Settings, data: NetworkData):
        super().__init__(settings, data)
        joint = [JointBlock(settings) for _ in range(settings.depth - 1)]
        self.blocks = nn.ModuleList([*joint, LastBlock(settings)])
        rotation = grid_rotation(data.x_shape.height // self.patch, settings.width // settings.heads)
        self.register_buffer("rotation", rotation, persistent=False)

    def forward(self, x: Images, t: Times, condition: Condition) -> tuple[Tokens, Conditions]:
        """Compute the image's tokens and the condition of the last layer."""
        tokens, (text, text_mask) = self.tokens(x), self.prompt(condition)
        each, last = self.conditions(t, condition)
        rotation = self.rotation.to(tokens.dtype)
        visible = None
        if text_mask is not None:
            visible = torch.cat([text_mask.new_ones(len(tokens), 1, 1, tokens.shape[1]), text_mask], dim=3)
        for block in self.blocks:
            tokens, text = block(tokens, text, each, rotation, visible)
        return tokens, last

    def prompt(self, condition: Condition) -> Prompt:
        """Return the tokens of the text stream: those of the text, or the class's one."""
        if self.embed_class is None:
            return super().prompt(condition)
        return Prompt(self.embed_class(condition)[:, None], None)


def grid_rotation(grid: int, width: int) -> Float32[Tensor, "2 {grid**2} {width//2}"]:
    """Compute the rotary cosines and sines of image tokens for a head of `width`.

    Axial rotary positions (arXiv 2104.09864, eq. 34, on two axes): a quarter of the width turns in planes with another
    quarter by the row, the other half by the column. Text is not turned: its encoder has encoded the order.
    """
    rows, columns = (angles(axis, width // 4) for axis in grid_axes(grid))
    turned = torch.cat([rows, columns], dim=1)
    return torch.stack([turned.cos(), turned.sin()]).float()


def rotate(x: Float[Tensor, "n heads t d"], rotation: Float[Tensor, "2 t d//2"]) -> Float[Tensor, "n heads t d"]:
    """Turn heads in the planes of entries i and D / 2 + i by cosines and sines."""
    (cos, sin), (a, b) = rotation, x.chunk(2, dim=3)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=3)


def joined(first: tuple[AnyHeads, ...], second: tuple[AnyHeads, ...]) -> list[AnyHeads]:
    """Concatenate the heads of two streams along the tokens, kind by kind (q, k, v)."""
    return [torch.cat(pair, dim=2) for pair in zip(first, second, strict=True)]


class MMDiT(DiT):
    """Denoiser of two streams of tokens, of the image and of its text or class."""

    trunk_class = TwoStreams
