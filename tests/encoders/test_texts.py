"""What every encoder of texts promises, whichever it is, and the table of an experiment's prompts."""

import pytest
import torch

from hpcddm import plugins
from hpcddm.encoders.base import prompt_states
from hpcddm.encoders.settings import TextEncoderSettings, TextSettings
from hpcddm.errors import UserError

PROMPTS = ["a photo of a cat", "a Cat.", "bridge over the river, at night", "naïve 猫"]


@pytest.fixture(params=plugins.names("encoders", TextEncoderSettings))
def text(request, fetched):
    """A function that makes the settings of some prompts in one encoder."""
    if request.param == "minilm":
        pytest.importorskip("tokenizers")
    fetched(request.param)
    return lambda prompts=PROMPTS, **more: TextSettings(encoder={"name": request.param}, prompts=prompts, **more)


def lengths(states):
    return states.ne(0).any(2).sum(1).tolist()


def test_states_stand_at_the_front_and_nothing_stands_behind(text):
    states = prompt_states(text(tokens=16))
    assert states.shape == (5, 16, text().encoder.dimensions()) and states.dtype == torch.float32
    there = states.ne(0).any(2)
    assert there[:, 0].all() and not there[:, -1].any()
    assert (there[:, :-1] | ~there[:, 1:]).all(), "a row of zeros before a token"
    assert states.isfinite().all() and not states.requires_grad


def test_the_empty_prompt_is_last_and_has_a_state(text):
    states = prompt_states(text(["a photo of a cat", ""]))
    torch.testing.assert_close(states[1], states[2], rtol=0, atol=0)
    assert 0 < lengths(states)[2] < lengths(states)[0]


def test_a_prompt_is_encoded_as_itself_whatever_stands_beside_it(text):
    together, alone = prompt_states(text()), prompt_states(text(PROMPTS[2:3]))
    torch.testing.assert_close(together[2:3], alone[:1], rtol=0, atol=0)
    torch.testing.assert_close(together[-1], alone[-1], rtol=0, atol=0)


def test_room_for_more_tokens_changes_no_state(text):
    few, many = prompt_states(text(tokens=12)), prompt_states(text(tokens=40))
    torch.testing.assert_close(many[:, :12], few, rtol=0, atol=0)


def test_other_words_have_other_states(text):
    states = prompt_states(text(["a cat", "a dog", "a cat"]))
    assert torch.equal(states[0], states[2]) and not torch.allclose(states[0], states[1])


def test_a_prompt_that_is_too_long_is_named_with_the_key_and_fits_when_there_is_room(text):
    needed = max(lengths(prompt_states(text())))
    assert prompt_states(text(tokens=needed))[:, -1].any()
    with pytest.raises(UserError, match=rf"data.text.tokens: {needed - 1} are too few for the {needed} of .*'"):
        prompt_states(text(tokens=needed - 1))
    with pytest.raises(UserError, match="data.text.tokens: 24 are too few"):
        prompt_states(text(["cat " * 2000]))
