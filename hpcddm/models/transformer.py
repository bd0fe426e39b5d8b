"""A trunk with its last layer, the common base of denoisers and routers."""

from typing import Any

import torch
from torch import nn

from hpcddm.models.parts import Modulated, linear, modulate, unpatchify
from hpcddm.models.size import LAST_VECTORS, DenoiserSettings, TransformerSettings
from hpcddm.models.trunk import Embeddings


class Transformer(Modulated):
    """A trunk and a last layer, `head` and its `modulation` or `table`, that starts as zero."""

    def __init__(self, settings: TransformerSettings, trunk: Embeddings, outputs: int):
        super().__init__(settings, LAST_VECTORS)
        self.trunk = trunk
        self.head = linear(settings.width, outputs, nn.init.zeros_)

    def normalised(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Compute the input of the head: normalised and modulated tokens (N, T, D)."""
        tokens, last = self.trunk(x, t, condition)
        return modulate(tokens, *self.vectors(last))

    def head_parameters(self) -> dict[str, nn.Parameter]:
        """Return the last layer's parameters by name: new, and trained alone, when the outputs change."""
        return {name: value for name, value in self.named_parameters() if not name.startswith("trunk.")}

    def set_prompts(self, states: torch.Tensor) -> None:
        """Set the states of every class's prompt and of the empty one in a text model.

        states: (num_classes + 1, L, D), rows of zeros being padding. Raises ValueError for another shape, and for a
        model without text.
        """
        prompts = self.trunk.prompts if self.trunk.embed_text is not None else None
        if prompts is None or prompts.shape != states.shape:
            needed = "no text: its condition is another" if prompts is None else f"prompts of shape {(*prompts.shape,)}"
            raise ValueError(f"the model takes {needed}; it was given {(*states.shape,)}")
        prompts.copy_(states)


class ImageTransformer(Transformer):
    """Denoiser from noisy images to its prediction: forward(x, t, condition) -> (N, C, H, W) float32.

    x: (N, C, H, W); t: (N,) in [0, 1]; condition: (N,) classes, `num_classes` being the null class, or for text models
    token states (N, L, D), too.
    """

    def __init__(self, settings: DenoiserSettings, data: Any, trunk: Embeddings):
        super().__init__(settings, trunk, settings.outputs(data))
        self.patch, self.channels, self.image_size = settings.patch, data.channels, data.image_size

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        return self.with_sigma(x, t, condition)[:, : self.channels]

    def with_sigma(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Compute all outputs, (N, 2 C, H, W) with learned sigma: the prediction, then the variance's interpolation."""
        patches = self.head(self.normalised(x, t, condition))
        channels = patches.shape[2] // self.patch**2
        return unpatchify(patches, self.patch, channels, self.image_size).float()
