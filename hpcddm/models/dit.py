"""DiT: a diffusion transformer with adaLN, conditioned on time and on class, text or nothing (arXiv 2212.09748).

This file has the whole forward pass: `Embeddings`, `Trunk`, `Transformer`, `DiT`. The layers of the blocks are in
`layers`. Routers and MMDiT share these classes.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float32
from torch import Tensor, nn

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.data_shapes import NetworkData, require_num_classes
from hpcddm.config.models import (
    BLOCK_VECTORS,
    FREQUENCIES,
    LAST_VECTORS,
    DenoisingTransformerSettings,
    OneStreamSettings,
    TransformerSettings,
)
from hpcddm.models.base import Condition, Denoiser, Images, Times
from hpcddm.models.layers import (
    Conditions,
    Modulated,
    Prompt,
    Tokens,
    TransformerBlock,
    block_norm,
    embedding_table,
    grid_positions,
    grid_rotation,
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


class DiTSettings(OneStreamSettings, DenoisingTransformerSettings):
    """Settings of the transformer: width, depth and heads or the name of a size; patch size, modulation, condition."""

    size: Literal["S", "B", "L", "XL"] | None = None

    def parameters(self, data: NetworkData) -> int:
        """Count the parameters of the network."""
        return count_trunk(self, data) + count_head(self, self.outputs(data))


class Embeddings(nn.Module):
    """Embeddings of images, times and classes or text; inputs are cast to the dtype of the parameters.

    Args:
        settings: Settings of the transformer.
        data: Properties of the data.
    """

    blocks: nn.ModuleList

    def __init__(self, settings: TransformerSettings, data: NetworkData):
        super().__init__()
        form, width = settings.condition_form(data), settings.width
        self.patch, self.time_spacing = settings.patch, settings.time_spacing
        self.embed_patch = linear(data.x_shape.channels * self.patch**2, width)
        self.embed_time = nn.Sequential(
            linear(FREQUENCIES, width, init_embedding), nn.SiLU(), linear(width, width, init_embedding)
        )
        self.embed_class = (
            embedding_table(require_num_classes(data) + 1, width) if form is ConditionForm.CLASS else None
        )
        self.embed_text = linear(data.condition.shape[-1], width) if form is ConditionForm.TEXT else None
        self.text_modulation = settings.text_modulation
        self.embed_pooled = None
        if self.text_modulation != "none":
            # Zero at the end: at first, and from weights of a network without it, text does not modulate.
            into, out = linear(data.condition.shape[-1], width), linear(width, width, nn.init.zeros_)
            self.embed_pooled = nn.Sequential(into, nn.SiLU(), out)
        single = settings.modulation == "single"
        self.modulation = linear(width, BLOCK_VECTORS * width, nn.init.zeros_) if single else None

    def tokens(self, x: Images) -> Tokens:
        """Embed images (N, C, H, W) as tokens (N, T, D)."""
        return self.embed_patch(patchify(x.to(self.embed_patch.weight.dtype), self.patch))

    def conditions(self, t: Times, condition: Condition) -> tuple[Conditions, Conditions]:
        """Compute the condition of the blocks and that of the last layer, the inputs of `Modulated.vectors`.

        As in the published models, the last layer of adaLN-single has no activation before it.

        Args:
            t: (N,) times in [0, 1].
            condition: (N,) class ids or (N, L, D) states of tokens.
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
        """Embed states of tokens (N, L, D); rows of zeros are padding.

        Raises:
            ValueError: The model has no text.
        """
        if self.embed_text is None:
            raise ValueError("a model without text has no prompts")
        tokens = self.embed_text(condition.to(self.embed_text.weight.dtype))
        return Prompt(tokens, visible_text(condition)[:, None, None])


class Trunk(Embeddings):
    """Layers before the last one: (x, t, condition) -> tokens and the condition of the last layer.

    Args:
        settings: Settings of the transformer.
        data: Properties of the data.
        cls: True to prepend a CLS token to the image's tokens.
    """

    positions: Tensor
    rotation: Tensor | None

    def __init__(self, settings: TransformerSettings, data: NetworkData, cls: bool = False):
        super().__init__(settings, data)
        with_text = self.embed_text is not None
        self.blocks = nn.ModuleList(TransformerBlock(settings, with_text) for _ in range(settings.depth))
        self.cls = None
        if cls:
            self.cls = nn.Parameter(torch.empty(settings.width))
            init_embedding(self.cls)
        positions = grid_positions(data.x_shape.height // self.patch, settings.width)
        self.register_buffer("positions", positions, persistent=False)
        rotation = None
        if settings.block.positions == "rotary":
            rotation = grid_rotation(data.x_shape.height // self.patch, settings.width // settings.heads)
            if cls:
                # The CLS token has no place, so it does not rotate.
                rotation = F.pad(rotation, (0, 0, 1, 0))
                rotation[0, 0] = 1
        self.register_buffer("rotation", rotation, persistent=False)

    def forward(self, x: Images, t: Times, condition: Condition) -> tuple[Tokens, Conditions]:
        """Compute the tokens (N, T, D) and the condition of the last layer."""
        tokens = self.tokens(x)
        tokens = tokens + self.positions.to(tokens.dtype)
        if self.cls is not None:
            tokens = torch.cat([self.cls.expand(len(tokens), 1, -1), tokens], dim=1)
        each, last = self.conditions(t, condition)
        prompt = None if self.embed_text is None else self.prompt(condition)
        rotation = None if self.rotation is None else self.rotation.to(tokens.dtype)
        for block in self.blocks:
            tokens = block(tokens, each, prompt, rotation)
        return tokens, last


class Transformer(Modulated):
    """A trunk and a last layer, `head` with its `modulation` or `table`, which starts at zero.

    Args:
        settings: Settings of the transformer.
        trunk: All layers except the last.
        outputs: Number of outputs per token.
    """

    def __init__(self, settings: TransformerSettings, trunk: Embeddings, outputs: int):
        super().__init__(settings, LAST_VECTORS)
        self.trunk = trunk
        self.norm = block_norm(settings)
        self.head = linear(settings.width, outputs, nn.init.zeros_)

    def stacked_blocks(self) -> Sequence[nn.Module]:
        """Return the blocks of the trunk."""
        return list(self.trunk.blocks)

    def normalised(self, x: Images, t: Times, condition: Condition) -> Tokens:
        """Compute the input of the head: normalised and modulated tokens (N, T, D)."""
        tokens, last = self.trunk(x, t, condition)
        return modulate(self.norm(tokens), *self.vectors(last))

    def head_parameters(self) -> dict[str, nn.Parameter]:
        """Return the last layer's parameters by name; a refit to another number of outputs trains only these."""
        kept = ("trunk.", "norm.")
        return {name: value for name, value in self.named_parameters() if not name.startswith(kept)}


class DiT(Transformer, Denoiser[DenoisingTransformerSettings]):
    """Denoiser with one stream of tokens; a subclass with another `trunk_class` is another network.

    Args:
        settings: Settings of the transformer.
        data: Properties of the data: shape of x, and classes or text.

    Examples:
        >>> from hpcddm.config.data import DataSettings
        >>> source = {"name": "image_folder", "folder": "photos"}
        >>> data = DataSettings.model_validate({"source": source, "image_size": 8, "num_classes": 10})
        >>> settings = DiTSettings(name="dit", width=16, depth=2, heads=2, patch=2)
        >>> x, t, classes = torch.zeros(4, 3, 8, 8), torch.rand(4), torch.tensor([0, 1, 2, 10])
        >>> DiT(settings, data)(x, t, classes).shape  # class 10 is the null class
        torch.Size([4, 3, 8, 8])
    """

    trunk_class: ClassVar[type[Embeddings]] = Trunk

    def __init__(self, settings: DenoisingTransformerSettings, data: NetworkData):
        super().__init__(settings, self.trunk_class(settings, data), settings.outputs(data))
        self.settings = settings
        self.patch, self.channels, self.size = settings.patch, data.x_shape.channels, data.x_shape.height

    def forward(self, x: Images, t: Times, condition: Condition) -> Float32[Tensor, "n c h w"]:
        """Compute the prediction (N, C, H, W), without the learned sigma."""
        return self.with_sigma(x, t, condition)[:, : self.channels]

    def with_sigma(self, x: Images, t: Times, condition: Condition) -> Float32[Tensor, "n channels h w"]:
        """Compute all outputs; with learned sigma they have 2 C channels, the variance's interpolation last."""
        patches = self.head(self.normalised(x, t, condition))
        channels = patches.shape[2] // self.patch**2
        return unpatchify(patches, self.patch, channels, self.size).float()
