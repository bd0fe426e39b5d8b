"""Text: the states of the tokens of a sentence, made by a frozen encoder."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from pydantic import Field
from torch import Tensor

from hpcddm.config.conditions import ConditionSettings, Form
from hpcddm.config.schema import Positive
from hpcddm.config.shapes import NetworkData
from hpcddm.config.text_encoders import TextEncoderSettings
from hpcddm.data.reader import Reader
from hpcddm.diffusion.conditions.base import Condition, Conditions
from hpcddm.diffusion.conditions.caption_states import CaptionStates
from hpcddm.diffusion.conditions.sentences import Sentences, require_finite, rounded
from hpcddm.errors import UserError
from hpcddm.runs.layout import Locate

KEPT_BYTES = 1 << 28
"""Most bytes of encoded sentences that are kept in memory."""


class Settings(ConditionSettings):
    """Encoder, number of token states, and a sentence for every class, or none where every image has a caption."""

    form: ClassVar[Form] = Form.TEXT
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"cached"})

    encoder: TextEncoderSettings
    tokens: Positive = 24
    """Number of token states of a sentence."""
    prompts: Annotated[list[str], Field(min_length=1)] | None = None
    """Sentence of every class, the caption of all its images; without them the images have captions of their own."""

    cached: bool | None = None
    """States of captions: true for a column that is made once, false for every step of a training, on its device.

    Without it the threads that read samples encode them, and keep those that fit into 256 MiB.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tokens, self.encoder.dimensions()

    @property
    def text_encoder(self) -> TextEncoderSettings | None:
        return self.encoder

    @property
    def reads_captions(self) -> bool:
        return self.prompts is None

    @property
    def reads_column(self) -> bool:
        return self.cached is True

    @property
    def encodes_in_steps(self) -> bool:
        return self.cached is False

    def check(self, experiment: Any) -> None:
        """Raise ValueError for another number of prompts than of classes, and for prompts that shall be cached."""
        if self.prompts is not None and self.cached is not None:
            raise ValueError("cached: a sentence of each class is encoded once anyway; leave it out beside prompts")
        if self.prompts is not None and len(self.prompts) != experiment.data.num_classes:
            raise ValueError(f"prompts: {len(self.prompts)} for {experiment.data.num_classes or 'no'} classes")


class Text(Condition[Settings]):
    """States of the tokens of sentences, from the first row on; the null condition is the empty sentence.

    A caption of the data is cut where it has too many tokens; a prompt of the user is refused. Every distinct sentence
    is encoded once, as far as memory is allowed for it; captions of a run's samples are read where they are a column.
    """

    def __init__(self, settings: Settings, data: NetworkData, locate: Locate | None = None) -> None:
        super().__init__(settings, data, locate)
        self._data, self._locate = data, locate
        self._sentences = Sentences(settings.encoder, settings.tokens)
        self._encoder = self._sentences.encoder
        sentence_bytes = 4 * (settings.tokens + 1) * settings.encoder.dimensions()
        self._states = lru_cache(max(KEPT_BYTES // sentence_bytes, 2))(self._encode)

    def of(self, reader: Reader, numbers: Sequence[int] | np.ndarray) -> Conditions:
        if self.settings.prompts is not None:
            return self.of_classes(reader.labels(numbers).tolist())
        if self.settings.reads_column and reader.split is not None:
            return self._column.of(reader.split, numbers)
        most = self.settings.tokens
        return self._padded([self._states(caption)[:most] for caption in reader.captions(numbers)])

    def carried(self, reader: Reader, numbers: Sequence[int] | np.ndarray, dropped: Bool[Tensor, " n"]) -> Tensor:
        """Make what a training's batch carries: the tokens of captions that are encoded on the device."""
        if not self.settings.encodes_in_steps:
            return super().carried(reader, numbers, dropped)
        captions = zip(reader.captions(numbers), dropped.tolist(), strict=True)
        return self._sentences.tokenised(["" if is_dropped else caption for caption, is_dropped in captions])

    def on_device(self, carried: Tensor) -> Conditions:
        return self._sentences.states(carried) if self.settings.encodes_in_steps else carried

    def null(self, count: int) -> Conditions:
        return self.of_prompts([""]).expand(count, -1, -1)

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

    @cached_property
    def _column(self) -> CaptionStates:
        if self._locate is None:
            raise ValueError("the condition of samples is in files of their run, which nothing locates here")
        return CaptionStates(self._data, self._locate)

    def _padded(self, encoded: Sequence[Tensor]) -> Float[Tensor, "n l d"]:
        """Put the states of sentences on rows of zeros; of a run with a column they are rounded as those in it."""
        dtype = torch.float32 if self.settings.cached is None else torch.float16
        padded = torch.zeros(len(encoded), *self.settings.shape, dtype=dtype)
        for row, states in zip(padded, encoded, strict=True):
            row[: len(states)] = states
        return padded

    @torch.no_grad()
    def _encode(self, sentence: str) -> Float[Tensor, "l d"]:
        """Encode a sentence; one state too many is kept of those that are too long, to tell them from others."""
        states: Float32[Tensor, "l d"] = self._encoder.encode(sentence)[: self.settings.tokens + 1]
        if self.settings.cached is None:
            return states.clone()
        states = rounded(states)
        require_finite(states, self.settings.encoder.name)
        return states
