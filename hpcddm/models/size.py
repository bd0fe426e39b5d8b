"""Settings of a transformer and its number of parameters; without torch, for planning on the login node."""

from typing import Any, ClassVar, Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from hpcddm.schema import Positive, VariantSettings

FREQUENCIES = 256
"""Number of cosines and sines of a time, the input of the first layer."""
MLP_RATIO = 4
BLOCK_VECTORS = 6
"""Shift, scale and gate of a block's attention and of its MLP."""
LAST_VECTORS = 2
"""Shift and scale before the head, or of the text stream of the last joint block."""


def linear_size(inputs: int, outputs: int) -> int:
    """Count the parameters of a linear layer with bias; a convolution has `inputs` = channels x kernel^2."""
    return (inputs + 1) * outputs


class TransformerSettings(VariantSettings):
    """Size, modulation and condition of a transformer."""

    sizes: ClassVar[dict[str, tuple[int, int, int]]] = {
        "S": (384, 12, 6),
        "B": (768, 12, 12),
        "L": (1024, 24, 16),
        "XL": (1152, 28, 16),
    }
    """Width, depth and heads of the named sizes (arXiv 2212.09748, table 1)."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"size"})

    size: str | None = None
    """Fills width, depth and heads."""
    width: Positive
    depth: Positive
    heads: Positive
    patch: Positive
    """Side of the square of pixels that becomes one token."""
    modulation: Literal["zero", "single"] = "zero"
    """adaLN-zero: a linear layer in every block; adaLN-single: one for all, and a table in each (arXiv 2310.00426)."""
    qk_norm: bool = False
    """QK norm: normalises the queries and keys of every head by their root mean square."""
    condition: Literal["class", "none", "text"] = "class"
    time_spacing: Literal["original", "diffusers"] = "original"
    """Spacing of the time's 128 frequencies: 1/128 of their range as in the original DiT, 1/127 as in diffusers."""

    @model_validator(mode="before")
    @classmethod
    def _named_size(cls, values: Any) -> Any:
        named = cls.sizes.get(str(values.get("size"))) if isinstance(values, dict) else None
        if named is None:
            return values
        filled = dict(zip(("width", "depth", "heads"), named, strict=True))
        for key, value in filled.items():
            if values.get(key, value) != value:
                text = f"{key}: {values[key]}, but size {values['size']} has {value}; leave one of the two out"
                raise PydanticCustomError("inner", "{text}", {"text": text})
        return values | filled

    def check(self, experiment: Any) -> None:
        """Raise ValueError unless patches tile the image, the width splits into heads and a text model has prompts."""
        if experiment.data.image_size % self.patch:
            raise ValueError(f"patch {self.patch} does not divide image_size {experiment.data.image_size}")
        if self.width % (4 * self.heads):
            raise ValueError(f"width {self.width} is no multiple of 4 x {self.heads} heads")
        if self.condition == "text" and experiment.data.text is None:
            raise ValueError("condition text needs data.text: an encoder and a prompt for every class")


class DenoiserSettings(TransformerSettings):
    """A transformer's settings; `learned_sigma` gives it the outputs for the variance that published models have."""

    role: ClassVar[str] = "denoiser"

    learned_sigma: bool = False

    def outputs(self, data: Any) -> int:
        """Count the network's outputs for a patch."""
        return (1 + self.learned_sigma) * data.channels * self.patch**2


def embeddings_size(settings: TransformerSettings, data: Any) -> int:
    """Count the parameters of `dit.Embeddings`: patches, time, class or text, the modulation that blocks share."""
    width = settings.width
    of_condition = {
        "class": lambda: (data.num_classes + 1) * width,
        "text": lambda: linear_size(data.text.encoder.width, width),
        "none": lambda: 0,
    }
    shared = linear_size(width, BLOCK_VECTORS * width) if settings.modulation == "single" else 0
    time = linear_size(FREQUENCIES, width) + linear_size(width, width)
    return linear_size(data.channels * settings.patch**2, width) + time + of_condition[settings.condition]() + shared


def modulated_size(settings: TransformerSettings, vectors: int) -> int:
    """Count the parameters of `layers.Modulated`: a linear layer of its own or a table."""
    return vectors * settings.width if settings.modulation == "single" else _linear(settings, 1, vectors)


def stream_size(settings: TransformerSettings) -> int:
    """Count the parameters of a block without cross-attention: modulation, self-attention, MLP."""
    mlp = _linear(settings, 1, MLP_RATIO) + _linear(settings, MLP_RATIO, 1)
    attention = _linear(settings, 1, 3) + _linear(settings, 1, 1) + 2 * norm_size(settings)
    return modulated_size(settings, BLOCK_VECTORS) + attention + mlp


def trunk_size(settings: TransformerSettings, data: Any) -> int:
    """Count the parameters of `dit.Trunk` without a CLS token: embeddings and blocks."""
    cross = 2 * _linear(settings, 1, 1) + _linear(settings, 1, 2) + 2 * norm_size(settings)
    block = stream_size(settings) + (cross if settings.condition == "text" else 0)
    return embeddings_size(settings, data) + settings.depth * block


def head_size(settings: TransformerSettings, outputs: int) -> int:
    """Count the parameters of the last layer of `dit.Transformer`."""
    return modulated_size(settings, LAST_VECTORS) + linear_size(settings.width, outputs)


def norm_size(settings: TransformerSettings) -> int:
    """Count the parameters of one QK norm of a head."""
    return settings.width // settings.heads if settings.qk_norm else 0


def _linear(settings: TransformerSettings, inputs: int, outputs: int) -> int:
    return linear_size(inputs * settings.width, outputs * settings.width)
