"""The prompts of an experiment as token states, once and for all: models hold them and training asks no encoder."""

import torch

from hpcddm import plugins
from hpcddm.config import TextSettings
from hpcddm.errors import UserError


@torch.no_grad()
def prompt_states(text: TextSettings) -> torch.Tensor:
    """The states of every prompt, then of the empty one: float32 (prompts + 1, tokens, width).

    Rows behind a prompt's last token are zero; no row of a token is. Raises `UserError` when a prompt has more tokens
    than there is room for, or the encoder is not there.
    """
    encode = plugins.load("encoders", text.encoder.name).build(text.encoder)
    states = torch.zeros(len(text.prompts) + 1, text.tokens, text.encoder.width)
    for place, prompt in enumerate([*text.prompts, ""]):
        found = encode(prompt)
        if len(found) > text.tokens:
            raise UserError(
                f"data.text.tokens: {text.tokens} are too few for the {len(found)} of the prompt '{prompt}';"
                " shorten it or raise data.text.tokens"
            )
        states[place, : len(found)] = found
    return states
