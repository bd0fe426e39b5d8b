"""Everything of a diffusion transformer but its last layer."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.models.parts import Block, Prompt, grid_positions, init_embedding, linear, patchify, time_waves
from hpcddm.models.size import BLOCK_VECTORS, FREQUENCIES, TransformerSettings


class Embeddings(nn.Module):
    """Embeddings of images, times and classes or text; the parameters may be bf16: inputs are cast to their dtype.

    `data` has channels, image_size, num_classes, and for text models text.tokens and text.encoder.width. Class number
    `num_classes` is the null class; its prompt is the empty one.
    """

    def __init__(self, settings: TransformerSettings, data: Any):
        super().__init__()
        width, self.patch, self.time_spacing = settings.width, settings.patch, settings.time_spacing
        self.embed_patch = linear(data.channels * self.patch**2, width)
        self.embed_time = nn.Sequential(
            linear(FREQUENCIES, width, init_embedding), nn.SiLU(), linear(width, width, init_embedding)
        )
        self.embed_class = nn.Embedding(data.num_classes + 1, width) if settings.condition == "class" else None
        self.embed_text = None
        if settings.condition == "class":
            init_embedding(self.embed_class.weight)
        if settings.condition == "text":
            self.embed_text = linear(data.text.encoder.width, width)
            states = torch.zeros(data.num_classes + 1, data.text.tokens, data.text.encoder.width)
            self.register_buffer("prompts", states)
        single = settings.modulation == "single"
        self.modulation = linear(width, BLOCK_VECTORS * width, nn.init.zeros_) if single else None

    def tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Embed images (N, C, H, W) as tokens (N, T, D), in the parameters' dtype."""
        return self.embed_patch(patchify(x.to(self.embed_patch.weight.dtype), self.patch))

    def conditions(self, t: torch.Tensor, condition: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the condition of the blocks and that of the last layer, the inputs of `parts.Modulated.vectors`.

        t: (N,) in [0, 1]. As in the published models the last layer of adaLN-single has no activation before it.
        """
        # The angles need float32: bf16 cannot tell 1000 t = 997 from 1000.
        embedding = self.embed_time(time_waves(t, self.time_spacing).to(self.embed_patch.weight.dtype))
        if self.embed_class is not None:
            embedding = embedding + self.embed_class(condition)
        active = F.silu(embedding)
        if self.modulation is None:
            return active, active
        return self.modulation(active).view(len(t), BLOCK_VECTORS, -1), embedding[:, None]

    def prompt(self, condition: torch.Tensor) -> Prompt | None:
        """Embed the text of class ids (N,) or states (N, L, D), whose rows of zeros are padding; None without text."""
        if self.embed_text is None:
            return None
        states = self.prompts[condition] if condition.dim() == 1 else condition
        visible = states.any(dim=2)
        # A softmax over nothing is NaN: of a prompt of padding only, one token is visible, the bias of the embedding.
        first = visible[:, :1] | ~visible.any(dim=1, keepdim=True)
        visible = torch.cat([first, visible[:, 1:]], dim=1)
        return Prompt(self.embed_text(states.to(self.embed_text.weight.dtype)), visible[:, None, None])


class Trunk(Embeddings):
    """One stream of tokens: (x, t, condition) -> tokens, condition of the last layer; `cls` prepends a CLS token."""

    def __init__(self, settings: TransformerSettings, data: Any, cls: bool = False):
        super().__init__(settings, data)
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.depth))
        self.cls = nn.Parameter(torch.empty(settings.width)) if cls else None
        if cls:
            init_embedding(self.cls)
        positions = grid_positions(data.image_size // self.patch, settings.width)
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens (N, T, D) and the last layer's condition.

        x: (N, C, H, W); t: (N,) in [0, 1]; condition: (N,) or (N, L, D).
        """
        tokens = self.tokens(x)
        tokens = tokens + self.positions.to(tokens.dtype)
        if self.cls is not None:
            tokens = torch.cat([self.cls.expand(len(tokens), 1, -1), tokens], dim=1)
        each, last = self.conditions(t, condition)
        prompt = self.prompt(condition)
        for block in self.blocks:
            tokens = block(tokens, each, prompt)
        return tokens, last
