"""Text: the states of the tokens of a sentence, made by a frozen encoder."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float32
from pydantic import Field
from torch import Tensor

from hpcddm import plugins
from hpcddm.conditions.base import Condition, Conditions
from hpcddm.conditions.settings import ConditionSettings, Form
from hpcddm.data.reader import Reader
from hpcddm.data.settings import NetworkData
from hpcddm.encoders.text.base import TextEncoder
from hpcddm.encoders.text.settings import TextEncoderSettings
from hpcddm.errors import UserError
from hpcddm.schema import Positive

KEPT_BYTES = 1 << 28
"""Most bytes of encoded sentences that are kept in memory."""


class Settings(ConditionSettings):
    """Encoder, number of token states, and a sentence for every class, or none where every image has a caption."""

    form: ClassVar[Form] = Form.TEXT

    encoder: TextEncoderSettings
    tokens: Positive = 24
    """Number of token states of a sentence."""
    prompts: Annotated[list[str], Field(min_length=1)] | None = None
    """Sentence of every class, the caption of all its images; without them the images have captions of their own."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tokens, self.encoder.dimensions()

    @property
    def encoder_name(self) -> str | None:
        return self.encoder.name

    @property
    def reads_captions(self) -> bool:
        return self.prompts is None

    def check(self, experiment: Any) -> None:
        """Raise ValueError for another number of prompts than of classes."""
        if self.prompts is not None and len(self.prompts) != experiment.data.num_classes:
            raise ValueError(f"prompts: {len(self.prompts)} for {experiment.data.num_classes or 'no'} classes")


class Text(Condition[Settings]):
    """States of the tokens of sentences, from the first row on; the null condition is the empty sentence.

    A caption of the data is cut where it has too many tokens; a prompt of the user is refused. Every distinct sentence
    is encoded once, as far as memory is allowed for it.
    """

    def __init__(self, settings: Settings, data: NetworkData) -> None:
        super().__init__(settings, data)
        self._encoder: TextEncoder[TextEncoderSettings] = plugins.create(TextEncoder, settings.encoder)
        sentence_bytes = 4 * (settings.tokens + 1) * settings.encoder.dimensions()
        self._states = lru_cache(max(KEPT_BYTES // sentence_bytes, 2))(self._encode)

    def of(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        if self.settings.prompts is not None:
            return self.of_classes(reader.labels(numbers).tolist())
        most = self.settings.tokens
        return self._padded([self._states(caption)[:most] for caption in reader.captions(numbers)])

    def null(self, count: int) -> Conditions:
        return self.of_prompts([""] * count)

    def of_classes(self, classes: Sequence[int]) -> Conditions:
        if self.settings.prompts is None:
            raise UserError("data.condition: the images have captions of their own, which a class does not say")
        return self.of_prompts([self.settings.prompts[label] for label in classes])

    def of_prompts(self, prompts: Sequence[str]) -> Conditions:
        most, encoded = self.settings.tokens, [self._states(prompt) for prompt in prompts]
        for prompt, states in zip(prompts, encoded, strict=True):
            if len(states) > most:
                needed = len(self._encoder.encode(prompt))
                raise UserError(
                    f"data.condition.tokens: {most} are too few for the {needed} of the prompt '{prompt}';"
                    " shorten it or raise data.condition.tokens"
                )
        return self._padded(encoded)

    def check(self) -> None:
        """Raise `UserError` naming a prompt of the settings that is too long."""
        self.of_prompts(["", *(self.settings.prompts or [])])

    def _padded(self, encoded: Sequence[Tensor]) -> Float32[Tensor, "n l d"]:
        """Put the states of sentences on rows of zeros."""
        padded = torch.zeros(len(encoded), *self.settings.shape)
        for row, states in zip(padded, encoded, strict=True):
            row[: len(states)] = states
        return padded

    @torch.no_grad()
    def _encode(self, sentence: str) -> Float32[Tensor, "l d"]:
        """Encode a sentence; one state too many is kept of those that are too long, to tell them from others."""
        return self._encoder.encode(sentence)[: self.settings.tokens + 1].clone()
