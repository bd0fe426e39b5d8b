"""How many parameters the parts have, from the settings alone: the login node plans storage without torch."""

from typing import Any

FREQUENCIES = 256
"""Cosines and sines of a time, before the first layer sees them."""
MLP_RATIO = 4


def linear_size(inputs: int, outputs: int) -> int:
    """Parameters of a linear layer with bias; a convolution has `inputs` = channels x kernel^2."""
    return (inputs + 1) * outputs


def trunk_size(settings: Any, data: Any) -> int:
    """Parameters of a transformer but for its last layer; the arguments are those of `parts.Trunk`."""
    width = settings.width
    attention = linear_size(width, 3 * width) + linear_size(width, width)
    mlp = linear_size(width, MLP_RATIO * width) + linear_size(MLP_RATIO * width, width)
    block = attention + mlp + linear_size(width, 6 * width)
    embeddings = linear_size(data.channels * settings.patch**2, width) + (data.num_classes + 1) * width
    return embeddings + linear_size(FREQUENCIES, width) + linear_size(width, width) + settings.depth * block
