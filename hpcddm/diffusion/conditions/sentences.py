"""States of sentences as columns and trainings have them: many at once, cut, and rounded to float16."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float16, Int64
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.text_encoders import TextEncoderSettings
from hpcddm.encoders.text.base import TextEncoder, padded_tokens
from hpcddm.errors import UserError


class Sentences:
    """A frozen encoder of sentences; tokens: number of states of a sentence at most.

    Raises `UserError` when the encoder's weights are missing.
    """

    def __init__(self, settings: TextEncoderSettings, tokens: int) -> None:
        self.encoder: TextEncoder[TextEncoderSettings] = variants.create(TextEncoder, settings)
        self.tokens = tokens

    def tokenised(self, sentences: Sequence[str]) -> Int64[Tensor, "n t"]:
        """Return all tokens of some sentences, which a batch carries to the device; threads may share it."""
        return padded_tokens(self.encoder, sentences)

    @torch.no_grad()
    def states(self, tokens: Int64[Tensor, "n t"]) -> Float16[Tensor, "n {self.tokens} d"]:
        """Compute the states on the tokens' device: those of whole sentences, of which the first ones are kept."""
        states = rounded(self.encoder.encode_tokens(tokens)[:, : self.tokens])
        return F.pad(states, (0, 0, 0, self.tokens - states.shape[1]))


def rounded(states: Tensor) -> Tensor:
    """Round states to float16, in which columns store them; those that it cannot hold become infinite."""
    return states.to(torch.float16)


def require_finite(states: Tensor, encoder: str) -> None:
    """Raise `UserError` naming the encoder for states that float16 cannot hold."""
    if not states.isfinite().all():
        raise UserError(
            f"data.condition.encoder: states of {encoder} are too large for float16; leave data.condition.cached out"
        )
