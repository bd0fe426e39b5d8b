"""Encoder states of sentences for columns and training steps: computed in batches, truncated, rounded to float16."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float16, Int64
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.conditions import TextEncoderSettings
from hpcddm.encoders.text.base import TextEncoder, padded_tokens
from hpcddm.errors import UserError


class SentenceEncoder:
    """Frozen encoder of sentences.

    Args:
        settings: Settings of the text encoder.
        tokens: Number of states per sentence; longer sentences are truncated.

    Raises:
        UserError: The weights of the encoder are missing.
    """

    def __init__(self, settings: TextEncoderSettings, tokens: int) -> None:
        self.encoder: TextEncoder[TextEncoderSettings] = variants.create(TextEncoder, settings)
        self.tokens = tokens

    def tokenise(self, sentences: Sequence[str]) -> Int64[Tensor, "n t"]:
        """Tokenise sentences without truncation; threads may call this method at the same time.

        Args:
            sentences: N sentences.

        Returns:
            (N, T) int64 token ids, which a batch holds until the device encodes them.
        """
        return padded_tokens(self.encoder, sentences)

    @torch.no_grad()
    def states(self, tokens: Int64[Tensor, "n t"]) -> Float16[Tensor, "n {self.tokens} d"]:
        """Encode whole sentences on the device of their tokens and return the first states.

        Args:
            tokens: (N, T) token ids from `tokenise`.

        Returns:
            (N, self.tokens, D) float16 states, padded with rows of zeros.
        """
        states = round_to_float16(self.encoder.encode_tokens(tokens)[:, : self.tokens])
        return F.pad(states, (0, 0, 0, self.tokens - states.shape[1]))


def round_to_float16(states: Tensor) -> Tensor:
    """Round states to float16, the dtype of stored columns; values beyond its range become infinite."""
    return states.to(torch.float16)


def require_finite(states: Tensor, encoder: str) -> None:
    """Check that float16 can represent the states.

    Args:
        states: States after rounding, of any shape.
        encoder: Name of the text encoder, for the error message.

    Raises:
        UserError: A state is infinite or NaN.
    """
    if not states.isfinite().all():
        raise UserError(
            f"data.condition.encoder: states of {encoder} are too large for float16; leave data.condition.cached out"
        )
