"""Base of the encoders that map sentences to token states."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hpcddm.config.variants import S, Variant
from hpcddm.encoders.gpu import require_gpu

PADDING = -1
"""Token that pads a sentence to the longest one of its batch."""


class TextEncoder(Variant[S]):
    """Encoder of English sentences, ready for use.

    An encoder with a network overrides `tokenise` and `encode_tokens` to encode many sentences at once on any device.

    Args:
        settings: Settings of the encoder.

    Raises:
        UserError: The weights are missing or not those expected, a package is not installed, or the encoder needs a GPU
            and none exists.
    """

    def __init__(self, settings: S) -> None:
        super().__init__(settings)
        require_gpu(settings)

    @abstractmethod
    def encode(self, prompt: str) -> Float32[Tensor, "l d"]:
        """Compute the token states of a sentence.

        Args:
            prompt: The sentence. It may be empty.

        Returns:
            States, (L, D) with L > 0, where D is `dimensions` of the settings. No state is zero.
        """

    def tokenise(self, sentence: str) -> list[int]:
        """Return the tokens of a sentence for `encode_tokens`; thread-safe.

        Args:
            sentence: The sentence. It may be empty.

        Returns:
            Tokens, whole numbers from 0; by default the bytes of the text.
        """
        return list(sentence.encode(errors="surrogateescape"))

    def encode_tokens(self, tokens: Int64[Tensor, "n t"]) -> Float32[Tensor, "n l d"]:
        """Compute the states of several sentences on the device of their tokens.

        By default, this calls `encode` for each sentence. An override may add numbers in another order than `encode`.

        Args:
            tokens: Results of `tokenise`, padded with `PADDING`, (N, T).

        Returns:
            States, padded with rows of zeros, (N, L, D).
        """
        rows = (bytes(row[row >= 0].tolist()) for row in tokens)
        states = [self.encode(text.decode(errors="surrogateescape")) for text in rows]
        return pad_sequence(states, batch_first=True).to(tokens.device)


def padded_tokens(encoder: TextEncoder[S], sentences: Sequence[str]) -> Int64[Tensor, "n t"]:
    """Tokenise sentences for `encode_tokens`.

    Args:
        encoder: Encoder of the sentences.
        sentences: One sentence or more.

    Returns:
        Tokens, padded with `PADDING`, (N, T).
    """
    each = [torch.tensor(encoder.tokenise(sentence), dtype=torch.long) for sentence in sentences]
    return pad_sequence(each, batch_first=True, padding_value=PADDING)


def zero_padding(states: Float32[Tensor, "n l d"], visible: Bool[Tensor, "n l"]) -> Float32[Tensor, "n l d"]:
    """Set the states of padding to zero.

    Args:
        states: (N, L, D).
        visible: False for padding, (N, L).

    Returns:
        States, (N, L, D).
    """
    return states.masked_fill(~visible[:, :, None], 0.0)
