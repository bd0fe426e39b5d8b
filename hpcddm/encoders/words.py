"""Words as fixed random vectors: without weights and without meaning, a cat no nearer to a kitten than to a fork."""

import hashlib
import re
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch

from hpcddm.schema import Positive, VariantSettings

END = "</s>"
"""No word looks like this. It stands behind every prompt, so that an empty one has a state too."""


class Settings(VariantSettings):
    """`width` is the number of values of one word's state. The order of the words is not seen."""

    role: ClassVar[str] = "text"

    width: Positive = 64


def build(settings: Settings) -> Callable[[str], torch.Tensor]:
    """A function from a sentence to unit vectors (L, width), one for each word and one for the end.

    A word's vector is a function of its letters alone, in lower case, on every machine.
    """

    def encode(prompt: str) -> torch.Tensor:
        words = [*re.findall(r"\w+", prompt.lower()), END]
        return torch.from_numpy(np.stack([_direction(word, settings.width) for word in words]))

    return encode


def _direction(word: str, width: int) -> np.ndarray:
    """A unit vector (width,), float32, without a preferred direction over all words."""
    values = np.frombuffer(hashlib.shake_256(word.encode()).digest(width), np.uint8) - 127.5
    return (values / np.linalg.norm(values)).astype(np.float32)
