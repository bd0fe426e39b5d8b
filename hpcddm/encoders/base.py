"""Bases of the encoders: of images to features, and of text to token states."""

from abc import abstractmethod

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from hpcddm import plugins
from hpcddm.encoders.settings import TextEncoderSettings, TextSettings
from hpcddm.errors import UserError
from hpcddm.plugins import S, Variant


class ImageEncoder(Variant[S]):
    """Encoder of images, ready to be used when it is created.

    Creating it raises `UserError` when its pretrained weights were not fetched.
    """

    @abstractmethod
    def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        """Compute the features of images, each independent of the others; d is the settings' `dimensions`."""


class TextEncoder(Variant[S]):
    """Encoder of English sentences, ready to be used when it is created.

    Creating it raises `UserError` when its pretrained weights were not fetched or a package is not installed.
    """

    @abstractmethod
    def encode(self, prompt: str) -> Float32[Tensor, "l d"]:
        """Compute a sentence's token states, none of which is zero; the empty sentence has at least one.

        d is the settings' `dimensions`.
        """


@torch.no_grad()
def prompt_states(text: TextSettings) -> Float32[Tensor, "{len(text.prompts)+1} {text.tokens} d"]:
    """Encode every prompt of an experiment, then the empty one: models hold the states, and training runs no encoder.

    Rows behind a prompt's last token are zero; no row of a token is. Raises `UserError` when a prompt has more tokens
    than `text.tokens`, or the encoder is missing.
    """
    encoder: TextEncoder[TextEncoderSettings] = plugins.create(TextEncoder, text.encoder)
    states = torch.zeros(len(text.prompts) + 1, text.tokens, text.encoder.dimensions())
    for row, prompt in enumerate([*text.prompts, ""]):
        token_states = encoder.encode(prompt)
        if len(token_states) > text.tokens:
            raise UserError(
                f"data.text.tokens: {text.tokens} are too few for the {len(token_states)} of the prompt '{prompt}';"
                " shorten it or raise data.text.tokens"
            )
        states[row, : len(token_states)] = token_states
    return states
