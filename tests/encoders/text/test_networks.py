"""States of tokens by networks of public packages: those that the package itself computes."""

import json
import shutil

import pytest
import torch

from hpcddm.config import variants
from hpcddm.encoders.text.base import TextEncoder, padded_tokens
from hpcddm.errors import UserError
from tests.encoders.networks import SAVED, with_packages

NAMES = [name for name in variants.list_variants("encoders/text") if name in SAVED]
SENTENCES = ["a red cat", "the dog runs and runs!", ""]


@pytest.fixture(params=with_packages(NAMES), scope="module")
def encoder(request, tiny):
    """One encoder of sentences."""
    return variants.create(TextEncoder, tiny(request.param))


@pytest.mark.parametrize("sentence", SENTENCES)
def test_every_token_has_a_state_and_none_is_zero(encoder, sentence):
    states = encoder.encode(sentence)
    assert states.dtype == torch.float32 and states.shape[1] == encoder.settings.dimensions()
    assert len(states) >= 1 and states.isfinite().all() and states.abs().sum(1).min() > 0


def test_sentences_together_have_the_states_that_they_have_alone(encoder):
    together = encoder.encode_tokens(padded_tokens(encoder, SENTENCES))
    for sentence, states in zip(SENTENCES, together, strict=True):
        alone = encoder.encode(sentence)
        torch.testing.assert_close(states[: len(alone)], alone, atol=1e-5, rtol=1e-5)
        assert not states[len(alone) :].any()


@torch.no_grad()
def test_states_of_clip_are_those_of_transformers_with_its_padding(tiny):
    from transformers import AutoTokenizer, CLIPTextModel

    experiment = tiny("clip_text")
    model = CLIPTextModel.from_pretrained(experiment.weights.folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(experiment.weights.folder)
    tokens = tokenizer(SENTENCES[1], padding="max_length", max_length=77, return_tensors="pt")
    states = variants.create(TextEncoder, experiment).encode(SENTENCES[1])
    padded = model(input_ids=tokens["input_ids"]).last_hidden_state[0]
    torch.testing.assert_close(states, padded[: len(states)], atol=1e-6, rtol=1e-6)
    assert len(states) == int(tokens["attention_mask"].sum()) == len("thedogrunsandruns!") + 2


@torch.no_grad()
def test_states_of_t5_are_those_of_transformers_with_a_mask(tiny):
    from transformers import AutoTokenizer, T5EncoderModel

    experiment = tiny("t5_text")
    model = T5EncoderModel.from_pretrained(experiment.weights.folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(experiment.weights.folder)
    tokens = tokenizer(SENTENCES[:2], padding=True, return_tensors="pt")
    padded = model(**tokens).last_hidden_state
    states = variants.create(TextEncoder, experiment).encode(SENTENCES[0])
    assert len(states) == 4 < padded.shape[1]
    torch.testing.assert_close(states, padded[0, :4], atol=1e-5, rtol=1e-5)


def test_a_longer_text_than_clip_has_places_for_keeps_the_end_token(tiny):
    encoder = variants.create(TextEncoder, tiny("clip_text"))
    assert len(encoder.encode("x " * 300)) == 77


def test_without_a_vocabulary_nothing_is_encoded(tiny, tmp_path):
    """Where there is none, transformers would make one up."""
    folder = tmp_path / "network"
    shutil.copytree(tiny("t5_text").weights.folder, folder, ignore=shutil.ignore_patterns("tokenizer*"))
    words = "network: weights of t5_text: tokenizer.json or spiece.model or merges.txt is missing"
    with pytest.raises(UserError, match=words):
        variants.create(TextEncoder, tiny("t5_text", weights={"folder": str(folder)}))


def test_a_vocabulary_in_two_files_is_that_of_one_and_half_of_it_is_refused(tiny, tmp_path):
    """The layout of OpenAI's CLIP."""
    folder = shutil.copytree(tiny("clip_text").weights.folder, tmp_path / "network")
    experiment = tiny("clip_text", weights={"folder": str(folder)})
    before = variants.create(TextEncoder, experiment).encode("a red cat")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    (folder / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(UserError, match="no tokenizer of clip_text|tokenizer of clip_text knows"):
        variants.create(TextEncoder, experiment)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    assert torch.equal(variants.create(TextEncoder, experiment).encode("a red cat"), before)


@pytest.mark.foreign
@torch.no_grad()
def test_states_of_open_clip_end_in_the_pooled_features_of_its_own_call(tiny):
    import open_clip

    experiment = tiny("open_clip_text")
    model = open_clip.create_model(f"local-dir:{experiment.weights.folder}").eval()
    tokens = open_clip.get_tokenizer(f"local-dir:{experiment.weights.folder}")(SENTENCES)
    encoder = variants.create(TextEncoder, experiment)
    # Its text features are the projected state of the end token.
    ends = torch.stack([encoder.encode(sentence)[-1] for sentence in SENTENCES])
    torch.testing.assert_close(ends @ model.text_projection, model.encode_text(tokens), atol=1e-6, rtol=1e-6)
    assert len(encoder.encode("a red cat")) == 5


@pytest.mark.foreign
def test_another_width_than_the_networks_is_an_error(tiny):
    with pytest.raises(UserError, match="width is 12 and that of open_clip_config.json is 24"):
        variants.create(TextEncoder, tiny("open_clip_text", width=12))
