"""Base of the encoders of sentences to token states."""

from abc import abstractmethod

from jaxtyping import Float32
from torch import Tensor

from hpcddm.plugins import S, Variant


class TextEncoder(Variant[S]):
    """Encoder of English sentences, ready to be used when it is created.

    Creating it raises `UserError` when its pretrained weights were not fetched or a package is not installed.
    """

    @abstractmethod
    def encode(self, prompt: str) -> Float32[Tensor, "l d"]:
        """Compute a sentence's token states, none of which is zero; the empty sentence has at least one.

        d is the settings' `dimensions`.
        """
