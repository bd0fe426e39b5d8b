"""Base of the encoders of sentences to token states."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hpcddm.config.variants import S, Variant
from hpcddm.encoders.gpu import require_gpu

PADDING = -1
"""Number behind the tokens of a sentence, up to those of the longest beside it."""


class TextEncoder(Variant[S]):
    """Encoder of English sentences, ready to be used when it is created.

    Creating it raises `UserError` when its weights are missing or other ones, a package is not installed, or it needs a
    GPU and there is none. An encoder with a network overrides `tokenise` and `encode_tokens`, to encode many sentences
    at once on any device.
    """

    def __init__(self, settings: S) -> None:
        super().__init__(settings)
        require_gpu(settings)

    @abstractmethod
    def encode(self, prompt: str) -> Float32[Tensor, "l d"]:
        """Compute a sentence's token states, none of which is zero; the empty sentence has at least one.

        d is the settings' `dimensions`.
        """

    def tokenise(self, sentence: str) -> list[int]:
        """Return what `encode_tokens` takes of a sentence, numbers of 0 and more; by default the bytes of its text.

        Several threads may call it.
        """
        return list(sentence.encode(errors="surrogateescape"))

    def encode_tokens(self, tokens: Int64[Tensor, "n t"]) -> Float32[Tensor, "n l d"]:
        """Compute the states of several sentences as `encode` does, on the device of their tokens.

        tokens: of `tokenise`, with `PADDING` behind them; rows of zeros stand behind the states of a sentence. Sums may
        have another order than in `encode`. By default it encodes one sentence after the other.
        """
        rows = (bytes(row[row >= 0].tolist()) for row in tokens)
        states = [self.encode(text.decode(errors="surrogateescape")) for text in rows]
        return pad_sequence(states, batch_first=True).to(tokens.device)


def padded_tokens(encoder: TextEncoder[S], sentences: Sequence[str]) -> Int64[Tensor, "n t"]:
    """Return the tokens of one sentence or more, for `encode_tokens`."""
    each = [torch.tensor(encoder.tokenise(sentence), dtype=torch.long) for sentence in sentences]
    return pad_sequence(each, batch_first=True, padding_value=PADDING)


def without_padding(states: Float32[Tensor, "n l d"], visible: Bool[Tensor, "n l"]) -> Float32[Tensor, "n l d"]:
    """Set the states that are not visible to zero."""
    return states.masked_fill(~visible[:, :, None], 0.0)
