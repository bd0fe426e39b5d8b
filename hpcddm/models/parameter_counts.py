"""Count parameters from settings, without torch, for planning on the login node."""

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.data_shapes import NetworkData, require_num_classes
from hpcddm.config.models import BLOCK_VECTORS, FREQUENCIES, LAST_VECTORS, MLP_RATIO, SWIGLU_RATIO, TransformerSettings


def count_linear(inputs: int, outputs: int) -> int:
    """Count the parameters of a linear layer with bias; a convolution has `inputs` = channels x kernel^2."""
    return (inputs + 1) * outputs


def count_embeddings(settings: TransformerSettings, data: NetworkData) -> int:
    """Count the parameters of `dit.Embeddings`: patches, time, class or text, and the modulation that blocks share.

    With `text_modulation`, the layers from the pooled text to the embedding of the time are included.
    """
    width = settings.width
    of_condition = {
        ConditionForm.CLASS: lambda: (require_num_classes(data) + 1) * width,
        ConditionForm.TEXT: lambda: count_linear(data.condition.shape[-1], width),
        ConditionForm.NONE: lambda: 0,
    }
    shared = count_linear(width, BLOCK_VECTORS * width) if settings.modulation == "single" else 0
    time = count_linear(FREQUENCIES, width) + count_linear(width, width)
    patches = count_linear(data.x_shape.channels * settings.patch**2, width)
    pooled = 0
    if settings.text_modulation != "none":
        pooled = count_linear(data.condition.shape[-1], width) + count_linear(width, width)
    return patches + time + of_condition[settings.condition_form(data)]() + pooled + shared


def count_modulated(settings: TransformerSettings, vectors: int) -> int:
    """Count the parameters of `layers.Modulated`: a linear layer or a table."""
    return vectors * settings.width if settings.modulation == "single" else _linear(settings, 1, vectors)


def count_stream(settings: TransformerSettings) -> int:
    """Count the parameters of a block without cross-attention: modulation, self-attention, MLP."""
    mlp = _linear(settings, 1, MLP_RATIO) + _linear(settings, MLP_RATIO, 1)
    if settings.block.mlp == "swiglu":
        hidden = int(SWIGLU_RATIO * settings.width)
        mlp = count_linear(settings.width, 2 * hidden) + count_linear(hidden, settings.width)
    attention = _linear(settings, 1, 3) + _linear(settings, 1, 1) + 2 * count_norm(settings)
    return count_modulated(settings, BLOCK_VECTORS) + attention + mlp + 2 * count_gain(settings)


def count_trunk(settings: TransformerSettings, data: NetworkData) -> int:
    """Count the parameters of `dit.Trunk` without a CLS token: embeddings and blocks."""
    cross = 2 * _linear(settings, 1, 1) + _linear(settings, 1, 2) + 2 * count_norm(settings)
    block = count_stream(settings) + (cross if settings.condition_form(data) is ConditionForm.TEXT else 0)
    return count_embeddings(settings, data) + settings.depth * block


def count_head(settings: TransformerSettings, outputs: int) -> int:
    """Count the parameters of the last layer of `dit.Transformer`."""
    return count_modulated(settings, LAST_VECTORS) + count_linear(settings.width, outputs) + count_gain(settings)


def count_gain(settings: TransformerSettings) -> int:
    """Count the parameters of one norm before a modulation."""
    return settings.width if settings.block.norm == "rms" else 0


def count_norm(settings: TransformerSettings) -> int:
    """Count the parameters of one QK norm of a head."""
    return settings.width // settings.heads if settings.qk_norm else 0


def _linear(settings: TransformerSettings, inputs: int, outputs: int) -> int:
    return count_linear(inputs * settings.width, outputs * settings.width)
