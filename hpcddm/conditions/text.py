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
from hpcddm.encoders.base import TextEncoder
from hpcddm.encoders.settings import TextEncoderSettings
from hpcddm.errors import UserError
from hpcddm.schema import Positive

KEPT_BYTES = 1 << 28
"""Most bytes of encoded sentences that are kept in memory."""


class Settings(ConditionSettings):
    """Encoder, number of token states, and a sentence for every class."""

    form: ClassVar[Form] = Form.TEXT

    encoder: TextEncoderSettings
    tokens: Positive = 24
    """Number of token states of a sentence."""
    prompts: Annotated[list[str], Field(min_length=1)]
    """Sentence of every class: the caption of all its images."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tokens, self.encoder.dimensions()

    @property
    def encoder_name(self) -> str | None:
        return self.encoder.name

    def check(self, experiment: Any) -> None:
        """Raise ValueError for another number of prompts than of classes."""
        if len(self.prompts) != experiment.data.num_classes:
            raise ValueError(f"prompts: {len(self.prompts)} for {experiment.data.num_classes or 'no'} classes")


class Text(Condition[Settings]):
    """States of the tokens of sentences, from the first row on; the null condition is the empty sentence.

    Every distinct sentence is encoded once, as far as memory is allowed for it.
    """

    def __init__(self, settings: Settings, data: NetworkData) -> None:
        super().__init__(settings, data)
        self._encoder: TextEncoder[TextEncoderSettings] = plugins.create(TextEncoder, settings.encoder)
        state_bytes = 4 * settings.tokens * settings.encoder.dimensions()
        self._states = lru_cache(max(KEPT_BYTES // state_bytes, 2))(self._encode)

    def of(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        return self.of_classes(reader.labels(numbers).tolist())

    def null(self, count: int) -> Conditions:
        return self.of_prompts([""] * count)

    def of_classes(self, classes: Sequence[int]) -> Conditions:
        return self.of_prompts([self.settings.prompts[label] for label in classes])

    def of_prompts(self, prompts: Sequence[str]) -> Conditions:
        states = torch.zeros(len(prompts), *self.settings.shape)
        for row, prompt in zip(states, prompts, strict=True):
            token_states = self._states(prompt)
            if len(token_states) > len(row):
                raise UserError(
                    f"data.condition.tokens: {len(row)} are too few for the {len(token_states)} of the prompt"
                    f" '{prompt}'; shorten it or raise data.condition.tokens"
                )
            row[: len(token_states)] = token_states
        return states

    def check(self) -> None:
        """Raise `UserError` naming a prompt of the settings that is too long."""
        self.of_prompts(self.settings.prompts)

    @torch.no_grad()
    def _encode(self, sentence: str) -> Float32[Tensor, "l d"]:
        return self._encoder.encode(sentence)
