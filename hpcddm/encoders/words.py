"""Words as fixed random vectors, without weights; the vectors of words with similar meanings are no closer."""

import hashlib
import re
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch

from hpcddm.schema import Positive, VariantSettings

END = "</s>"
"""End token, which equals no word and follows every prompt, so that an empty one has a state too."""


class Settings(VariantSettings):
    """Number of values `width` of one word's state. The order of the words has no effect on it."""

    role: ClassVar[str] = "text"

    width: Positive = 64


def build(settings: Settings) -> Callable[[str], torch.Tensor]:
    """Build a function from a sentence to unit vectors (L, width), one for each word and one for the end.

    A word's vector is a function of its letters alone, in lower case, on every machine.
    """

    def encode(prompt: str) -> torch.Tensor:
        tokens = [*re.findall(r"\w+", prompt.lower()), END]
        return torch.from_numpy(np.stack([_direction(word, settings.width) for word in tokens]))

    return encode


def _direction(word: str, width: int) -> np.ndarray:
    """Hash a word to a unit vector (width,), float32, without a preferred direction over all words."""
    values = np.frombuffer(hashlib.shake_256(word.encode()).digest(width), np.uint8) - 127.5
    return (values / np.linalg.norm(values)).astype(np.float32)
