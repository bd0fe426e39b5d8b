"""What text promises, whichever its encoder."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.conditions import ConditionSettings, TextEncoderSettings
from hpcddm.config.weights import SettingsWithWeights
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.conditions import text as room
from hpcddm.errors import UserError
from tests.diffusion.spaces.examples import network_data

PROMPTS = ["a photo of a cat", "a Cat.", "bridge over the river, at night", "naïve 猫"]


ALL = variants.settings_classes(TextEncoderSettings)
OWN = [name for name, settings in ALL.items() if not issubclass(settings, SettingsWithWeights)]
"""Encoders that need no weights of the user's."""


@pytest.fixture(params=OWN)
def text(request, fetched):
    """A function that makes the condition of some prompts in one encoder."""
    if request.param == "minilm":
        pytest.importorskip("tokenizers")
    fetched("text", request.param)

    def build(prompts=PROMPTS, **more):
        values = {"name": "text", "encoder": {"name": request.param}, "prompts": prompts} | more
        condition = ConditionSettings.model_validate(values)
        data = network_data(1, 8, len(prompts or [None]))
        return conditions.create_condition(SimpleNamespace(**vars(data) | {"condition": condition}))

    return build


def lengths(states):
    return states.ne(0).any(2).sum(1).tolist()


def test_states_stand_at_the_front_and_nothing_stands_behind(text):
    condition = text(tokens=16)
    states = condition.of_prompts([*PROMPTS, ""])
    assert states.shape == (5, *condition.settings.shape) and states.dtype == torch.float32
    there = states.ne(0).any(2)
    assert there[:, 0].all() and not there[:, -1].any()
    assert (there[:, :-1] | ~there[:, 1:]).all(), "a row of zeros before a token"
    assert states.isfinite().all() and not states.requires_grad


def test_the_null_condition_is_the_empty_sentence_and_has_a_state(text):
    condition = text()
    null = condition.null(3)
    assert torch.equal(null, condition.of_prompts(["", "", ""]))
    assert 0 < lengths(null)[0] < lengths(condition.of_classes([0]))[0]
    assert condition.null(0).shape == (0, *condition.settings.shape)


def test_a_prompt_is_encoded_as_itself_whatever_stands_beside_it(text):
    together, alone = text().of_prompts(PROMPTS), text(PROMPTS[2:3]).of_prompts(PROMPTS[2:3])
    torch.testing.assert_close(together[2:3], alone, rtol=0, atol=0)


def test_room_for_more_tokens_changes_no_state(text):
    few, many = (text(tokens=tokens).of_prompts(PROMPTS) for tokens in (12, 40))
    torch.testing.assert_close(many[:, :12], few, rtol=0, atol=0)


def test_a_class_means_its_prompt(text):
    condition = text(["a cat", "a dog", "a cat"])
    states = condition.of_classes([0, 1, 2])
    assert torch.equal(states[0], states[2]) and not torch.allclose(states[0], states[1])
    assert torch.equal(states, condition.of_prompts(["a cat", "a dog", "a cat"]))
    labelled = ArrayReader(np.zeros((2, 8, 8, 1), np.uint8), np.array([1, 0]), np.zeros(2, int))
    assert torch.equal(condition.of_samples(labelled, [1, 1, 0]), states[[0, 0, 1]])


def test_a_prompt_that_is_too_long_is_named_with_the_key_and_fits_when_there_is_room(text):
    needed = max(lengths(text().of_prompts(PROMPTS)))
    assert text(tokens=needed).of_prompts(PROMPTS)[:, -1].any()
    with pytest.raises(UserError, match=rf"data.condition.tokens: {needed - 1} are too few for the {needed} of .*'"):
        text(tokens=needed - 1).check()
    with pytest.raises(UserError, match="data.condition.tokens: 24 are too few"):
        text(["cat " * 2000]).check()
    text().check()


def test_every_sentence_is_encoded_once_while_there_is_room_for_it(text, monkeypatch):
    condition = text()
    asked, encode = [], condition._encoder.encode
    monkeypatch.setattr(condition._encoder, "encode", lambda sentence: asked.append(sentence) or encode(sentence))
    condition.of_prompts(["a cat", "a dog", "a cat"])
    condition.of_prompts(["a dog"])
    assert asked == ["a cat", "a dog"]
    monkeypatch.setattr(room, "CACHE_BYTES", 0)
    small = text()
    small.of_prompts(list("abcdefgh"))
    assert small._states.cache_info().currsize == 2


def test_a_caption_that_is_too_long_is_cut_where_a_prompt_is_refused(text):
    condition = text(prompts=None, tokens=4)
    captions = ["a cat", "a cat and a dog and a bird"]
    reader = ArrayReader(np.zeros((2, 8, 8, 1), np.uint8), np.zeros(2, int), np.zeros(2, int), captions)
    states = condition.of_samples(reader, [0, 1])
    assert lengths(states)[1] == 4
    whole = text(prompts=None, tokens=16).of_samples(reader, [1])
    assert torch.equal(states[1], whole[0, :4])
    with pytest.raises(UserError, match="data.condition.tokens: 4 are too few"):
        condition.of_prompts(captions)
