"""Text tower of CLIP (Radford et al., arXiv 2103.00020) and its kin, as open_clip runs it."""

import torch
import torch.nn.functional as F
from jaxtyping import Float32, Int64
from torch import Tensor

from hpcddm.config.conditions import TextEncoderSettings
from hpcddm.encoders.open_clip_network import load_network, load_tokenizer
from hpcddm.encoders.open_clip_settings import OpenClipSettings
from hpcddm.encoders.text.base import TextEncoder, zero_padding
from hpcddm.errors import require
from hpcddm.files.foreign_json import ForeignJson
from hpcddm.jobs.devices import current_device


class OpenClipTextSettings(OpenClipSettings, TextEncoderSettings):
    """Number of values `width` of a token's state, before the projection: 512 for ViT-B, 768 for ViT-L."""

    def dimensions(self) -> int:
        return self.width

    def width_of_model(self, described: ForeignJson) -> object:
        return described.take("model_cfg.text_cfg.width", int, self.width)


class OpenClipText(TextEncoder[OpenClipTextSettings]):
    """States after the last norm, of the tokens up to the last one that is not padding."""

    def __init__(self, settings: OpenClipTextSettings) -> None:
        super().__init__(settings)
        self.network = load_network(settings, current_device())
        self.tokenizer = load_tokenizer(settings)
        # Tokenizers of transformers have their own padding token; open_clip's pads with zeros.
        self.padding = getattr(getattr(self.tokenizer, "tokenizer", None), "pad_token_id", 0)
        width = self.encode("").shape[1]
        require(
            width == settings.width, f"encoder {settings.name}: width is {settings.width} and the network's {width}"
        )

    def encode(self, prompt: str) -> Float32[Tensor, "l d"]:
        device = next(self.network.parameters()).device
        return self.encode_tokens(torch.tensor([self.tokenise(prompt)], device=device))[0].cpu()

    def tokenise(self, sentence: str) -> list[int]:
        tokens = self.tokenizer([sentence])[0]
        # A text of nothing but padding keeps one token.
        length = max([0, *(tokens != self.padding).nonzero()[:, 0].tolist()]) + 1
        ids: list[int] = tokens[:length].tolist()
        return ids

    @torch.no_grad()
    def encode_tokens(self, tokens: Int64[Tensor, "n t"]) -> Float32[Tensor, "n t d"]:
        visible = tokens >= 0
        # The network wants all its positions filled.
        missing = self.tokenizer.context_length - tokens.shape[1]
        whole = F.pad(tokens.masked_fill(~visible, self.padding), (0, missing), value=self.padding)
        layers = self.network.to(tokens.device).forward_intermediates(
            text=whole, text_indices=1, normalize_intermediates=True, intermediates_only=True
        )["text_intermediates"]
        return zero_padding(layers[-1][:, : tokens.shape[1]].float(), visible)
