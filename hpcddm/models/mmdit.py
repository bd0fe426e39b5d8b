"""MMDiT: image and text as two streams that attend jointly (arXiv 2403.03206, sec. 4), with rotary positions."""

from typing import Any, ClassVar, Literal

import torch
from torch import nn

from hpcddm.models.dit import Embeddings, ImageTransformer
from hpcddm.models.layers import (
    Modulated,
    Prompt,
    Stream,
    angles,
    attend,
    grid_axes,
    head_norm,
    linear,
    modulate,
    split_heads,
)
from hpcddm.models.size import (
    LAST_VECTORS,
    DenoiserSettings,
    embeddings_size,
    head_size,
    linear_size,
    modulated_size,
    norm_size,
    stream_size,
)


class Settings(DenoiserSettings):
    """Width, depth and heads of both streams, or the name of a size.

    Width 2560 and depth 30 (arXiv 2501.05450, sec. 4) with two full streams count 4.7 B parameters before any
    modulation (24 x width^2 x depth), not the 3 B they are published as. `3B` keeps the depth and has width 2048, 16
    heads of 128, adaLN-single modulation that both streams share, and no text layers behind the last joint attention.
    """

    sizes: ClassVar[dict[str, tuple[int, int, int]]] = {"3B": (2048, 30, 16)}

    size: Literal["3B"] | None = None
    modulation: Literal["zero", "single"] = "single"
    qk_norm: bool = True
    condition: Literal["class", "text"] = "class"
    """A class is one token of the text stream, and it modulates as in DiT; text does not modulate."""

    def parameters(self, data: Any, num_outputs: int | None = None) -> int:
        """Count the network's parameters."""
        last_text = modulated_size(self, LAST_VECTORS) + linear_size(self.width, 2 * self.width) + norm_size(self)
        streams = (2 * self.depth - 1) * stream_size(self)
        return embeddings_size(self, data) + streams + last_text + head_size(self, self.outputs(data))


class LastText(Modulated):
    """Text stream of the last block: keys and values only, since its tokens are not updated."""

    def __init__(self, settings: Settings):
        super().__init__(settings, LAST_VECTORS)
        self.heads = settings.heads
        self.kv = linear(settings.width, 2 * settings.width)
        self.norm_k = head_norm(settings)

    def project(self, tokens: torch.Tensor, condition: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute keys and values, each (N, heads, L, D)."""
        k, v = split_heads(self.kv(modulate(tokens, *self.vectors(condition))), 2, self.heads)
        return self.norm_k(k), v


class JointBlock(nn.Module):
    """Two streams, one attention over all tokens; forward(x, text, condition, rotation, visible) -> x, text."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.image, self.text = Stream(settings), Stream(settings)

    def forward(
        self,
        x: torch.Tensor,
        text: torch.Tensor,
        condition: torch.Tensor,
        rotation: torch.Tensor,
        visible: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute both streams after the block.

        x: (N, T, D); text: (N, L, D); condition: as `conditions` gives it; rotation: of the image's tokens; visible:
        mask of the tokens that are no padding, None where none is.
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
        x: torch.Tensor,
        text: torch.Tensor,
        condition: torch.Tensor,
        rotation: torch.Tensor,
        visible: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the image's tokens after the block; the text stays as it is. Arguments as those of a `JointBlock`."""
        vectors = self.image.vectors(condition)
        q, k, v = self.image.project(x, vectors)
        k, v = joined((rotate(k, rotation), v), self.text.project(text, condition))
        x = self.image.attended(x, attend(rotate(q, rotation), k, v, visible), vectors)
        return self.image.transformed(x, vectors), text


class TwoStreams(Embeddings):
    """Joint blocks over the tokens of image and text: (x, t, condition) -> tokens, condition of the last layer."""

    def __init__(self, settings: Settings, data: Any):
        super().__init__(settings, data)
        joint = [JointBlock(settings) for _ in range(settings.depth - 1)]
        self.blocks = nn.ModuleList([*joint, LastBlock(settings)])
        rotation = grid_rotation(data.image_size // self.patch, settings.width // settings.heads)
        self.register_buffer("rotation", rotation, persistent=False)

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens (N, T, D) and the last layer's condition.

        x: (N, C, H, W); t: (N,) in [0, 1]; condition: (N,) or (N, L, D).
        """
        tokens, (text, text_mask) = self.tokens(x), self.prompt(condition)
        each, last = self.conditions(t, condition)
        rotation = self.rotation.to(tokens.dtype)
        visible = None
        if text_mask is not None:
            visible = torch.cat([text_mask.new_ones(len(tokens), 1, 1, tokens.shape[1]), text_mask], dim=3)
        for block in self.blocks:
            tokens, text = block(tokens, text, each, rotation, visible)
        return tokens, last

    def prompt(self, condition: torch.Tensor) -> Prompt:
        """Return the tokens of the text stream: those of the text, or the class's one."""
        if self.embed_class is None:
            return super().prompt(condition)
        return Prompt(self.embed_class(condition)[:, None], None)


def joined(first: tuple[torch.Tensor, ...], second: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Concatenate heads (N, heads, T, D) of two streams along the tokens, kind by kind (q, k, v)."""
    return [torch.cat(pair, dim=2) for pair in zip(first, second, strict=True)]


def grid_rotation(grid: int, width: int) -> torch.Tensor:
    """Compute the rotary cosines and sines of image tokens for a head of `width`: (2, grid^2, width / 2) float32.

    Axial rotary positions (arXiv 2104.09864, eq. 34, on two axes): a quarter of the width turns in planes with another
    quarter by the row, the other half by the column. Text is not turned: its encoder has encoded the order.
    """
    rows, columns = (angles(axis, width // 4) for axis in grid_axes(grid))
    turned = torch.cat([rows, columns], dim=1)
    return torch.stack([turned.cos(), turned.sin()]).float()


def rotate(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Turn heads (N, heads, T, D) in the planes of entries i and D / 2 + i by (cosines, sines), (2, T, D / 2)."""
    (cos, sin), (a, b) = rotation, x.chunk(2, dim=3)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=3)


def build(settings: Settings, data: Any, num_outputs: int | None = None) -> nn.Module:
    """Build the network; `data` has channels, image_size, num_classes, and text for text models."""
    return ImageTransformer(settings, data, TwoStreams(settings, data))
