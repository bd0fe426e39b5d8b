"""Words as fixed random vectors, without weights; similar meanings do not give similar vectors."""

import hashlib
import re
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from hpcddm.config.conditions import TextEncoderSettings
from hpcddm.config.schema import Positive
from hpcddm.encoders.text.base import TextEncoder

END = "</s>"
"""End token, which equals no word and follows every prompt, so that an empty one has a state too."""


class WordVectorsSettings(TextEncoderSettings):
    """Number of values `width` of one word's state. The order of the words has no effect on it."""

    uses_gpu: ClassVar[bool] = False

    width: Positive = 64

    def dimensions(self) -> int:
        return self.width


class WordVectors(TextEncoder[WordVectorsSettings]):
    """Unit vectors, one for each word and one for the end.

    A word's vector is a function of its letters alone, in lower case, on every machine.
    """

    def encode(self, prompt: str) -> Float32[Tensor, "l d"]:
        tokens = [*re.findall(r"\w+", prompt.lower()), END]
        return torch.from_numpy(np.stack([_direction(word, self.settings.width) for word in tokens]))


def _direction(word: str, width: int) -> Float32[np.ndarray, " {width}"]:
    """Hash a word to a unit vector without a preferred direction over all words."""
    values = np.frombuffer(hashlib.shake_256(word.encode()).digest(width), np.uint8) - 127.5
    return (values / np.linalg.norm(values)).astype(np.float32)
