import sys

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

from hpcddm.config import pretrained
from hpcddm.encoders.text import minilm
from hpcddm.errors import UserError

SETTINGS = minilm.MiniLMEncoderSettings(name="minilm")
SENTENCES = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
PUBLISHED = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
"""Similarities of the three by the documentation of sentence-transformers, which averages the tokens' states."""


@pytest.fixture(scope="module")
def encode(fetched):
    """The encoder with its weights."""
    pytest.importorskip("tokenizers")
    fetched("text", "minilm")
    return minilm.MiniLMEncoder(SETTINGS).encode


def test_similarities_are_the_published_ones(encode):
    means = F.normalize(torch.stack([encode(sentence).mean(0) for sentence in SENTENCES]))
    torch.testing.assert_close(means @ means.T, torch.tensor(PUBLISHED), atol=1e-4, rtol=0)


def test_case_does_not_matter_and_order_does(encode):
    assert torch.equal(encode("A Cat"), encode("a cat"))
    assert not torch.allclose(encode("man bites dog").mean(0), encode("dog bites man").mean(0), atol=1e-2)


def test_every_stored_weight_has_its_place(encode):
    own = minilm.load_network().state_dict()
    with safe_open(pretrained.find_verified(SETTINGS.pretrained[0]), "pt") as stored:
        names = [name for name in stored.keys() if not name.startswith(minilm.UNUSED)]
        assert len(names) == len(own) == 101
        total = sum(stored.get_tensor(name).double().sum() for name in names)
    assert sum(values.double().sum() for values in own.values()) == pytest.approx(total.item(), rel=1e-9)


def test_the_forward_pass_is_that_of_torchs_own_layer():
    """Post-norm, GELU, 12 heads: an independent implementation, at random weights."""
    torch.manual_seed(0)
    own = minilm.Layer().double().eval()
    peer = torch.nn.TransformerEncoderLayer(
        minilm.WIDTH, minilm.HEADS, minilm.INNER, dropout=0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    )
    peer.double()
    stacked = {
        f"self_attn.in_proj_{kind}": torch.cat([getattr(part, kind) for part in (own.query, own.key, own.value)])
        for kind in ("weight", "bias")
    }
    named = {"self_attn.out_proj": own.out, "linear1": own.widen, "linear2": own.narrow,
             "norm1": own.attention_norm, "norm2": own.norm}  # fmt: skip
    parts = {f"{name}.{key}": value for name, part in named.items() for key, value in part.state_dict().items()}
    peer.load_state_dict(stacked | parts)
    states = torch.randn(2, 9, minilm.WIDTH, dtype=torch.float64)
    torch.testing.assert_close(own(states), peer(states), atol=1e-12, rtol=1e-12)


def test_without_weights_a_job_says_which_command_fetches_them(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="all_minilm_l6_v2_tokenizer-be50c3628f2bf5bb.json: missing; .*hpcddm prefetch"):
        minilm.MiniLMEncoder(SETTINGS)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match="needs the package tokenizers; install it with"):
        minilm.MiniLMEncoder(SETTINGS)
