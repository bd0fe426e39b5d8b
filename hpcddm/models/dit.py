"""DiT: a diffusion transformer with adaLN, conditioned on time and on class, text or nothing (arXiv 2212.09748).

The whole forward pass is here, from its first step to its last: `Embeddings`, `Trunk`, `Transformer`, `DiT`; the
blocks' layers are in `layers`. Router and MMDiT share what is theirs, too.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float32
from torch import Tensor, nn

from hpcddm.config.conditions import Form
from hpcddm.config.models import (
    BLOCK_VECTORS,
    FREQUENCIES,
    LAST_VECTORS,
    DenoisingTransformerSettings,
    TransformerSettings,
)
from hpcddm.config.shapes import NetworkData, classes_of
from hpcddm.models.base import Condition, Denoiser, Images, Times
from hpcddm.models.layers import (
    Block,
    Conditions,
    Modulated,
    Prompt,
    Tokens,
    embedding_table,
    grid_positions,
    init_embedding,
    linear,
    modulate,
    patchify,
    pooled_text,
    time_waves,
    unpatchify,
    visible_text,
)
from hpcddm.models.parameter_counts import count_head, count_trunk


class Settings(DenoisingTransformerSettings):
    """Settings of a transformer: width, depth and heads or the name of a size; patch size, modulation, condition."""

    size: Literal["S", "B", "L", "XL"] | None = None

    def parameters(self, data: NetworkData) -> int:
        return count_trunk(self, data) + count_head(self, self.outputs(data))


class Embeddings(nn.Module):
    """Embeddings of images, times and classes or text; inputs are cast to the dtype of the parameters."""

    blocks: nn.ModuleList

    def __init__(self, settings: TransformerSettings, data: NetworkData):
        super().__init__()
        form, width = settings.form(data), settings.width
        self.patch, self.time_spacing = settings.patch, settings.time_spacing
        self.embed_patch = linear(data.x_shape.channels * self.patch**2, width)
        self.embed_time = nn.Sequential(
            linear(FREQUENCIES, width, init_embedding), nn.SiLU(), linear(width, width, init_embedding)
        )
        self.embed_class = embedding_table(classes_of(data) + 1, width) if form is Form.CLASS else None
        self.embed_text = linear(data.condition.shape[-1], width) if form is Form.TEXT else None
        self.text_modulation = settings.text_modulation
        self.embed_pooled = None
        if self.text_modulation != "none":
            # Zero at the end: at first, and from weights of a network without it, text does not modulate.
            into, out = linear(data.condition.shape[-1], width), linear(width, width, nn.init.zeros_)
            self.embed_pooled = nn.Sequential(into, nn.SiLU(), out)
        single = settings.modulation == "single"
        self.modulation = linear(width, BLOCK_VECTORS * width, nn.init.zeros_) if single else None

    def tokens(self, x: Images) -> Tokens:
        """Embed images as tokens, in the parameters' dtype."""
        return self.embed_patch(patchify(x.to(self.embed_patch.weight.dtype), self.patch))

    def conditions(self, t: Times, condition: Condition) -> tuple[Conditions, Conditions]:
        """Compute the condition of the blocks and that of the last layer, the inputs of `Modulated.vectors`.

        As in the published models the last layer of adaLN-single has no activation before it.
        """
        # The angles need float32: bf16 cannot tell 1000 t = 997 from 1000.
        embedding = self.embed_time(time_waves(t, self.time_spacing).to(self.embed_patch.weight.dtype))
        if self.embed_class is not None:
            embedding = embedding + self.embed_class(condition)
        if self.embed_pooled is not None:
            # Pooled text modulates as time does (arXiv 2403.03206, sec. 4, the vector y).
            states = condition.to(self.embed_patch.weight.dtype)
            embedding = embedding + self.embed_pooled(pooled_text(states, self.text_modulation))
        active = F.silu(embedding)
        if self.modulation is None:
            return active, active
        return self.modulation(active).view(len(t), BLOCK_VECTORS, -1), embedding[:, None]

    def prompt(self, condition: Condition) -> Prompt:
        """Embed states of tokens, whose rows of zeros are padding.

        Raises ValueError for a model without text.
        """
        if self.embed_text is None:
            raise ValueError("a model without text has no prompts")
        tokens = self.embed_text(condition.to(self.embed_text.weight.dtype))
        return Prompt(tokens, visible_text(condition)[:, None, None])


class Trunk(Embeddings):
    """Everything but the last layer: (x, t, condition) -> tokens, condition of the last layer.

    cls: prepend a CLS token to the image's tokens.
    """

    positions: Tensor

    def __init__(self, settings: TransformerSettings, data: NetworkData, cls: bool = False):
        super().__init__(settings, data)
        with_text = self.embed_text is not None
        self.blocks = nn.ModuleList(Block(settings, with_text) for _ in range(settings.depth))
        self.cls = None
        if cls:
            self.cls = nn.Parameter(torch.empty(settings.width))
            init_embedding(self.cls)
        positions = grid_positions(data.x_shape.height // self.patch, settings.width)
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, x: Images, t: Times, condition: Condition) -> tuple[Tokens, Conditions]:
        tokens = self.tokens(x)
        tokens = tokens + self.positions.to(tokens.dtype)
        if self.cls is not None:
            tokens = torch.cat([self.cls.expand(len(tokens), 1, -1), tokens], dim=1)
        each, last = self.conditions(t, condition)
        prompt = None if self.embed_text is None else self.prompt(condition)
        for block in self.blocks:
            tokens = block(tokens, each, prompt)
        return tokens, last


class Transformer(Modulated):
    """A trunk and a last layer, `head` and its `modulation` or `table`, that starts as zero."""

    def __init__(self, settings: TransformerSettings, trunk: Embeddings, outputs: int):
        super().__init__(settings, LAST_VECTORS)
        self.trunk = trunk
        self.head = linear(settings.width, outputs, nn.init.zeros_)

    def stacked_blocks(self) -> Sequence[nn.Module]:
        return list(self.trunk.blocks)

    def normalised(self, x: Images, t: Times, condition: Condition) -> Tokens:
        """Compute the input of the head: normalised and modulated tokens."""
        tokens, last = self.trunk(x, t, condition)
        return modulate(tokens, *self.vectors(last))

    def head_parameters(self) -> dict[str, nn.Parameter]:
        """Return the last layer's parameters by name: new, and trained alone, when the outputs change."""
        return {name: value for name, value in self.named_parameters() if not name.startswith("trunk.")}


class DiT(Transformer, Denoiser[DenoisingTransformerSettings]):
    """Denoiser of one stream of tokens; a subclass with another `trunk_class` is another network."""

    trunk_class: ClassVar[type[Embeddings]] = Trunk

    def __init__(self, settings: DenoisingTransformerSettings, data: NetworkData):
        super().__init__(settings, self.trunk_class(settings, data), settings.outputs(data))
        self.settings = settings
        self.patch, self.channels, self.size = settings.patch, data.x_shape.channels, data.x_shape.height

    def forward(self, x: Images, t: Times, condition: Condition) -> Float32[Tensor, "n c h w"]:
        return self.with_sigma(x, t, condition)[:, : self.channels]

    def with_sigma(self, x: Images, t: Times, condition: Condition) -> Float32[Tensor, "n channels h w"]:
        """Compute all outputs, 2 C channels with learned sigma: the prediction, then the variance's interpolation."""
        patches = self.head(self.normalised(x, t, condition))
        channels = patches.shape[2] // self.patch**2
        return unpatchify(patches, self.patch, channels, self.size).float()
