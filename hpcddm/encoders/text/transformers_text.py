"""Text encoders of transformers: a tokenizer and a network from one folder."""

from typing import Any, TypeVar

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from hpcddm.config.weights import SettingsWithWeights
from hpcddm.encoders.optional_packages import UNREADABLE, first_line, from_pretrained, import_package, load_verified
from hpcddm.encoders.text.base import TextEncoder, zero_padding
from hpcddm.errors import UserError, require
from hpcddm.jobs.devices import current_device

MIN_VOCABULARY_SHARE = 0.9
"""Least share of a network's tokens that its tokenizer knows."""
W = TypeVar("W", bound=SettingsWithWeights, covariant=True)


class TransformersText(TextEncoder[W]):
    """States of a network's last layer for the tokens of a sentence, without padding.

    network, tokenizer: names of the classes of transformers. A sentence with more tokens than the network has positions
    loses the last of them.
    """

    def __init__(self, settings: W, network: str, tokenizer: str) -> None:
        super().__init__(settings)
        transformers = import_package("transformers", settings)
        kind = getattr(transformers, network)
        self.network = load_verified(settings, lambda folder: from_pretrained(kind, folder), current_device())
        self.tokenizer = _tokenizer(getattr(transformers, tokenizer), settings, self.network.config.vocab_size)

    def encode(self, prompt: str) -> Float32[Tensor, "l d"]:
        tokens = torch.tensor([self.tokenise(prompt)], device=self.network.device)
        return self.encode_tokens(tokens)[0].cpu()

    def tokenise(self, sentence: str) -> list[int]:
        most = getattr(self.network.config, "max_position_embeddings", None)
        limit = {"truncation": True, "max_length": most} if most else {}
        ids: list[int] = self.tokenizer(sentence, **limit)["input_ids"]
        return ids

    @torch.no_grad()
    def encode_tokens(self, tokens: Int64[Tensor, "n t"]) -> Float32[Tensor, "n t d"]:
        visible = tokens >= 0
        network = self.network.to(tokens.device)
        states = network(input_ids=tokens.clamp(min=0), attention_mask=visible.long()).last_hidden_state
        return zero_padding(states.float(), visible)


def _tokenizer(kind: Any, own: SettingsWithWeights, entries: int) -> Any:
    """Load a tokenizer; raises `UserError` for one whose vocabulary is not that of a network with so many entries."""
    folder = own.weights.place
    try:
        tokenizer = kind.from_pretrained(folder, local_files_only=True)
    except UNREADABLE as error:
        raise UserError(
            f"{folder}: no tokenizer of {own.name} ({first_line(error)}); copy tokenizer.json there, or for"
            " spiece.model install the package sentencepiece"
        ) from error
    # Transformers invents a vocabulary if files are missing; networks have some spare entries.
    require(
        MIN_VOCABULARY_SHARE * entries <= len(tokenizer) <= entries,
        f"{folder}: the tokenizer of {own.name} knows {len(tokenizer)} tokens and the network {entries}; copy the"
        " tokenizer's files there again, all of them",
    )
    return tokenizer
