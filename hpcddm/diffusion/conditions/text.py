"""Text: states of the tokens of a sentence, computed by a frozen encoder."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from pydantic import Field
from torch import Tensor

from hpcddm.config.conditions import ConditionForm, ConditionSettings, TextEncoderSettings
from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.schema import Positive
from hpcddm.data.reader import Reader
from hpcddm.diffusion.conditions.base import Condition, Conditions
from hpcddm.diffusion.conditions.caption_states import CaptionStates
from hpcddm.diffusion.conditions.sentence_encoder import SentenceEncoder, require_finite, round_to_float16
from hpcddm.errors import UserError
from hpcddm.runs.run_dir import Locate

CACHE_BYTES = 1 << 28
"""Largest size of the memory cache of encoded sentences in bytes."""


class TextSettings(ConditionSettings):
    """Encoder, number of token states, and a sentence per class; without sentences the images' captions are used."""

    form: ClassVar[ConditionForm] = ConditionForm.TEXT
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"cached"})

    encoder: TextEncoderSettings
    tokens: Positive = 24
    """Number of token states of a sentence."""
    prompts: Annotated[list[str], Field(min_length=1)] | None = None
    """Sentence of every class, used for all its images; by default the images' own captions are used."""

    cached: bool | None = None
    """Encoding of captions: true for once, into a column; false for every training step, on its device.

    By default the threads that read samples encode them, with a cache of 256 MiB.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (tokens, D) of the states of one sentence."""
        return self.tokens, self.encoder.dimensions()

    @property
    def text_encoder(self) -> TextEncoderSettings | None:
        """Settings of the text encoder."""
        return self.encoder

    @property
    def numbers_classes(self) -> bool:
        """True for sentences of classes."""
        return self.prompts is not None

    @property
    def reads_captions(self) -> bool:
        """True if the images have their own captions."""
        return self.prompts is None

    @property
    def reads_column(self) -> bool:
        """True if the states of captions are read from a column."""
        return self.cached is True

    @property
    def encodes_in_steps(self) -> bool:
        """True if training steps encode the captions on their device."""
        return self.cached is False

    def check(self, experiment: Any) -> None:
        """Raise ValueError if the prompts do not match the classes, or are given together with `cached`."""
        if self.prompts is not None and self.cached is not None:
            raise ValueError("cached: a sentence of each class is encoded once anyway; leave it out with prompts")
        if self.prompts is not None and len(self.prompts) != experiment.data.num_classes:
            raise ValueError(f"prompts: {len(self.prompts)} for {experiment.data.num_classes or 'no'} classes")


class Text(Condition[TextSettings]):
    """States of the tokens of sentences, beginning with the first row; the null condition is the empty sentence.

    Captions with too many tokens are truncated; prompts with too many tokens are errors. A memory cache avoids encoding
    a sentence twice. If the run has a column of caption states, they are read from it.
    """

    def __init__(self, settings: TextSettings, data: NetworkData, locate: Locate | None = None) -> None:
        super().__init__(settings, data, locate)
        self._data, self._locate = data, locate
        self._sentences = SentenceEncoder(settings.encoder, settings.tokens)
        self._encoder = self._sentences.encoder
        sentence_bytes = 4 * (settings.tokens + 1) * settings.encoder.dimensions()
        self._states = lru_cache(max(CACHE_BYTES // sentence_bytes, 2))(self._encode)

    def of_samples(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        """Return the states of the samples' captions, or of the sentences of their classes."""
        if self.settings.prompts is not None:
            return self.of_classes(reader.labels(numbers).tolist())
        if self.settings.reads_column and reader.split is not None:
            return self._column.of(reader.split, numbers)
        most = self.settings.tokens
        return self._padded([self._states(caption)[:most] for caption in reader.captions(numbers)])

    def to_batch(self, reader: Reader, numbers: Sequence[int] | np.ndarray, dropped: Bool[Tensor, " n"]) -> Tensor:
        """Return token ids of captions if training steps encode them, else the conditions."""
        if not self.settings.encodes_in_steps:
            return super().to_batch(reader, numbers, dropped)
        captions = zip(reader.captions(numbers), dropped.tolist(), strict=True)
        return self._sentences.tokenise(["" if is_dropped else caption for caption, is_dropped in captions])

    def from_batch(self, values: Tensor) -> Conditions:
        """Encode token ids if training steps do so, else return the conditions."""
        return self._sentences.states(values) if self.settings.encodes_in_steps else values

    def null(self, count: int) -> Conditions:
        """Return the states of the empty sentence `count` times."""
        return self.of_prompts([""]).expand(count, -1, -1)

    def of_classes(self, classes: Sequence[int]) -> Conditions:
        """Return the states of the sentences of the classes."""
        if self.settings.prompts is None:
            raise UserError("data.condition: the images have their own captions, which a class does not determine")
        return self.of_prompts([self.settings.prompts[label] for label in classes])

    def of_prompts(self, prompts: Sequence[str]) -> Conditions:
        """Return the states of the sentences."""
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
        """Raise `UserError` if a prompt in the settings is too long."""
        self.of_prompts(["", *(self.settings.prompts or [])])

    @cached_property
    def _column(self) -> CaptionStates:
        if self._locate is None:
            raise ValueError("the condition of samples is in files of their run, which nothing locates here")
        return CaptionStates(self._data, self._locate)

    def _padded(self, encoded: Sequence[Tensor]) -> Float[Tensor, "n l d"]:
        """Pad the states of sentences with rows of zeros; a run with a column has states in float16."""
        dtype = torch.float32 if self.settings.cached is None else torch.float16
        padded = torch.zeros(len(encoded), *self.settings.shape, dtype=dtype)
        for row, states in zip(padded, encoded, strict=True):
            row[: len(states)] = states
        return padded

    @torch.no_grad()
    def _encode(self, sentence: str) -> Float[Tensor, "l d"]:
        """Encode a sentence; one extra state is kept if the sentence is too long, as a mark of its length."""
        states: Float32[Tensor, "l d"] = self._encoder.encode(sentence)[: self.settings.tokens + 1]
        if self.settings.cached is None:
            return states.clone()
        states = round_to_float16(states)
        require_finite(states, self.settings.encoder.name)
        return states
