"""MMDiT: image and text as two streams that attend jointly (arXiv 2403.03206, sec. 4), with rotary positions."""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.models import LAST_VECTORS, DenoisingTransformerSettings
from hpcddm.models.base import Condition, Images, Times
from hpcddm.models.dit import DiT, Embeddings
from hpcddm.models.layers import (
    Conditions,
    Modulated,
    Prompt,
    Stream,
    Tokens,
    attend,
    block_norm,
    grid_rotation,
    head_norm,
    linear,
    modulate,
    rotate,
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


class MMDiTSettings(DenoisingTransformerSettings):
    """Width, depth and heads of both streams, or the name of a size.

    Two full streams of width 2560 and depth 30 (arXiv 2501.05450, sec. 4) have 4.7 B parameters before any modulation
    (24 x width^2 x depth), not the published 3 B. The size `3B` keeps the depth and has width 2048, 16 heads of 128,
    adaLN-single modulation shared by both streams, and no text layers after the last joint attention.
    """

    sizes: ClassVar[dict[str, tuple[int, int, int]]] = {"3B": (2048, 30, 16)}

    size: Literal["3B"] | None = None
    modulation: Literal["zero", "single"] = "single"
    qk_norm: bool = True
    condition: Literal["given"] = "given"
    """A class is one token of the text stream and modulates as in DiT; for text see `text_modulation`."""

    def check(self, experiment: Any) -> None:
        """Raise ValueError for the reasons of any transformer, or without a condition for the text stream."""
        super().check(experiment)
        if experiment.data.condition.form is ConditionForm.NONE:
            raise ValueError("mmdit needs a condition for its text stream; data.condition is none")

    def parameters(self, data: NetworkData) -> int:
        """Count the parameters of the network."""
        last_text = count_modulated(self, LAST_VECTORS) + count_linear(self.width, 2 * self.width) + count_norm(self)
        streams = (2 * self.depth - 1) * count_stream(self)
        return count_embeddings(self, data) + streams + last_text + count_head(self, self.outputs(data))


class LastTextStream(Modulated):
    """Text stream of the last block: keys and values only, since its tokens are not updated."""

    def __init__(self, settings: MMDiTSettings):
        super().__init__(settings, LAST_VECTORS)
        self.heads = settings.heads
        self.norm = block_norm(settings)
        self.kv = linear(settings.width, 2 * settings.width)
        self.norm_k = head_norm(settings)

    def project(self, tokens: Tokens, condition: Conditions) -> tuple[Tensor, Tensor]:
        """Compute keys and values, each (N, heads, L, D / heads)."""
        k, v = split_heads(self.kv(modulate(self.norm(tokens), *self.vectors(condition))), 2, self.heads)
        return self.norm_k(k), v


class JointBlock(nn.Module):
    """Two streams with one attention over all tokens.

    Text tokens do not rotate, because the text encoder has encoded their order.
    """

    def __init__(self, settings: MMDiTSettings):
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

        Args:
            x: (N, T, D) tokens of the image.
            text: (N, L, D) tokens of the text.
            condition: Condition of the modulation.
            rotation: (2, T, D / heads / 2) rotary cosines and sines of the image's tokens.
            visible: (N, 1, 1, T + L) mask of the tokens that are not padding; None without padding.
        """
        of_image, of_text = self.image.vectors(condition), self.text.vectors(condition)
        q, k, v = self.image.project(x, of_image)
        q, k, v = concatenate_heads((rotate(q, rotation), rotate(k, rotation), v), self.text.project(text, of_text))
        from_image, from_text = attend(q, k, v, visible).split([x.shape[1], text.shape[1]], dim=2)
        x, text = self.image.add_attention(x, from_image, of_image), self.text.add_attention(text, from_text, of_text)
        return self.image.add_mlp(x, of_image), self.text.add_mlp(text, of_text)


class LastBlock(nn.Module):
    """Joint block that attends to the text but does not update it; called like a `JointBlock`."""

    def __init__(self, settings: MMDiTSettings):
        super().__init__()
        self.image, self.text = Stream(settings), LastTextStream(settings)

    def forward(
        self,
        x: Float[Tensor, "n t d"],
        text: Float[Tensor, "n l d"],
        condition: Conditions,
        rotation: Rotation,
        visible: Bool[Tensor, "n 1 1 t+l"] | None,
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "n l d"]]:
        """Compute the image's tokens after the block, with the arguments of `JointBlock`; the text stays unchanged."""
        vectors = self.image.vectors(condition)
        q, k, v = self.image.project(x, vectors)
        k, v = concatenate_heads((rotate(k, rotation), v), self.text.project(text, condition))
        x = self.image.add_attention(x, attend(rotate(q, rotation), k, v, visible), vectors)
        return self.image.add_mlp(x, vectors), text


class TwoStreams(Embeddings):
    """Layers before the last one: joint blocks over the tokens of image and text."""

    rotation: Tensor

    def __init__(self, settings: MMDiTSettings, data: NetworkData):
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
        """Return the tokens of the text stream: the tokens of a text, or one token for a class."""
        if self.embed_class is None:
            return super().prompt(condition)
        return Prompt(self.embed_class(condition)[:, None], None)


def concatenate_heads(first: tuple[AnyHeads, ...], second: tuple[AnyHeads, ...]) -> list[AnyHeads]:
    """Concatenate the heads of two streams along the tokens, separately for queries, keys and values."""
    return [torch.cat(pair, dim=2) for pair in zip(first, second, strict=True)]


class MMDiT(DiT):
    """Denoiser with two streams of tokens: the image, and its text or class."""

    trunk_class = TwoStreams
