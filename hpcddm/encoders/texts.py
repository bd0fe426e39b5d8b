"""Prompts of an experiment as token states, computed once: models hold them and training runs no encoder."""

import torch

from hpcddm import plugins
from hpcddm.config import TextSettings
from hpcddm.errors import UserError


@torch.no_grad()
def prompt_states(text: TextSettings) -> torch.Tensor:
    """Encode every prompt, then the empty one: float32 (prompts + 1, tokens, width).

    Rows behind a prompt's last token are zero; no row of a token is. Raises `UserError` when a prompt has more tokens
    than `text.tokens`, or the encoder is missing.
    """
    encode = plugins.load("encoders", text.encoder.name).build(text.encoder)
    states = torch.zeros(len(text.prompts) + 1, text.tokens, text.encoder.width)
    for place, prompt in enumerate([*text.prompts, ""]):
        token_states = encode(prompt)
        if len(token_states) > text.tokens:
            raise UserError(
                f"data.text.tokens: {text.tokens} are too few for the {len(token_states)} of the prompt '{prompt}';"
                " shorten it or raise data.text.tokens"
            )
        states[place, : len(token_states)] = token_states
    return states
