"""Bases of the encoders: of images to features, and of text to token states."""

from abc import abstractmethod

import numpy as np
from jaxtyping import Float32, UInt8
from torch import Tensor

from hpcddm.plugins import S, Variant


class ImageEncoder(Variant[S]):
    """Encoder of images, ready to be used when it is created.

    Creating it raises `UserError` when its pretrained weights were not fetched.
    """

    @abstractmethod
    def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        """Compute the features of images, each independent of the others; d is the settings' `dimensions`."""


class TextEncoder(Variant[S]):
    """Encoder of English sentences, ready to be used when it is created.

    Creating it raises `UserError` when its pretrained weights were not fetched or a package is not installed.
    """

    @abstractmethod
    def encode(self, prompt: str) -> Float32[Tensor, "l d"]:
        """Compute a sentence's token states, none of which is zero; the empty sentence has at least one.

        d is the settings' `dimensions`.
        """
