"""Tiny networks with random weights, saved by the packages themselves in their own layouts."""

import json
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddm.encoders import optional_packages
from tests.encoders.inception_weights import FILE, random_state

# Where torchvision is installed transformers looks at it, and a build for CUDA needs help.
if find_spec("torchvision"):
    optional_packages.import_torchvision()

LETTERS = [chr(code) for code in range(ord("!"), ord("~") + 1)]
WORDS = ("a", "red", "cat", "sits", "on", "the", "mat", "and", "dog", "runs")


DINO = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 224, "patch_size": 14}


def dinov2(folder: Path, **changes: Any) -> dict[str, Any]:
    """DINOv2 with two layers; the settings of the encoder that reads it."""
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    Dinov2Model(Dinov2Config(**(DINO | changes), initializer_range=0.2)).save_pretrained(folder)
    return {"name": "dinov2", "weights": {"folder": str(folder)}, "width": 24}


def dinov2_with_registers(folder: Path) -> dict[str, Any]:
    """The network of another class that has further tokens between the first one and the patches."""
    from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    torch.manual_seed(0)
    Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**DINO, num_register_tokens=3)).save_pretrained(folder)
    return {"name": "dinov2", "weights": {"folder": str(folder)}, "width": 24, "pooling": "mean"}


def clip_text(folder: Path) -> dict[str, Any]:
    """CLIP's text tower with two layers, and its tokenizer with a vocabulary of letters."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    tokens = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS)]
    CLIPTokenizer(vocab={token: number for number, token in enumerate(tokens)}, merges=[]).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "max_position_embeddings": 77}
    CLIPTextModel(CLIPTextConfig(vocab_size=len(tokens), **sizes, **ends)).save_pretrained(folder)
    return {"name": "clip_text", "weights": {"folder": str(folder)}, "width": 32}


def t5_text(folder: Path) -> dict[str, Any]:
    """T5 with two layers, and its tokenizer with a vocabulary of some words and all letters."""
    from transformers import T5Config, T5EncoderModel, T5Tokenizer

    pieces = ["<pad>", "</s>", "<unk>", "\u2581", *(f"\u2581{word}" for word in WORDS), *LETTERS]
    vocabulary = [(piece, -1.0 - number / 100) for number, piece in enumerate(pieces)]
    T5Tokenizer(vocab=vocabulary, extra_ids=0).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": len(pieces)}
    T5EncoderModel(T5Config(**sizes)).save_pretrained(folder)
    return {"name": "t5_text", "weights": {"folder": str(folder)}, "width": 32}


def diffusers_kl(folder: Path) -> dict[str, Any]:
    """A KL autoencoder that shrinks sides by four."""
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 3, "up_block_types": ("UpDecoderBlock2D",) * 3}
    sizes = {"block_out_channels": (8, 8, 16), "norm_num_groups": 4, "latent_channels": 4, "sample_size": 16}
    AutoencoderKL(**blocks, **sizes).save_pretrained(folder)
    return {"name": "diffusers_kl", "weights": {"folder": str(folder)}, "factor": 4}


def diffusers_tiny(folder: Path) -> dict[str, Any]:
    """A tiny autoencoder that shrinks sides by four."""
    from diffusers import AutoencoderTiny

    torch.manual_seed(0)
    blocks = {"num_encoder_blocks": (1, 1, 1), "num_decoder_blocks": (1, 1, 1)}
    widths = {"encoder_block_out_channels": (8, 8, 8), "decoder_block_out_channels": (8, 8, 8)}
    AutoencoderTiny(**blocks, **widths).save_pretrained(folder)
    return {"name": "diffusers_tiny", "weights": {"folder": str(folder)}, "factor": 4}


def inception_2015(folder: Path) -> dict[str, Any]:
    """The whole network, which has one size, as torch-fidelity publishes it."""
    folder.mkdir(parents=True)
    torch.save(random_state(), folder / FILE)
    return {"name": "inception_2015", "weights": {"folder": str(folder)}}


CLIP = {
    "embed_dim": 20,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 24, "heads": 2, "layers": 2},
}
"""Open_clip's description of a tiny CLIP; the vocabulary is that of the tokenizer that comes with open_clip."""


def open_clip_model(folder: Path) -> torch.nn.Module:
    """A tiny CLIP as it lies on a hub."""
    from open_clip import CLIP as Clip
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = Clip(**CLIP).eval()
    folder.mkdir(parents=True)
    described = {"model_cfg": CLIP, "preprocess_cfg": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return model


def open_clip_image(folder: Path) -> dict[str, Any]:
    """The settings of the encoder that reads the tiny CLIP's image tower."""
    open_clip_model(folder)
    return {"name": "open_clip_image", "weights": {"folder": str(folder)}, "width": 20}


def open_clip_text(folder: Path) -> dict[str, Any]:
    """The settings of the encoder that reads the tiny CLIP's text tower."""
    open_clip_model(folder)
    return {"name": "open_clip_text", "weights": {"folder": str(folder)}, "width": 24}


def timm_model(folder: Path) -> dict[str, Any]:
    """A small vision transformer of timm."""
    import timm
    from safetensors.torch import save_file
    from timm.models._hub import save_config_for_hf

    torch.manual_seed(0)
    model = timm.create_model("test_vit", pretrained=False)
    folder.mkdir(parents=True)
    # As save_for_hf does, whose oldest version wants an older huggingface_hub.
    save_file(model.state_dict(), folder / "model.safetensors")
    save_config_for_hf(model, folder / "config.json")
    return {"name": "timm_model", "weights": {"folder": str(folder)}, "width": model.num_features}


SAVED: dict[str, Callable[[Path], dict[str, Any]]] = {
    one.__name__: one
    for one in (
        *(dinov2, clip_text, t5_text, diffusers_kl, diffusers_tiny),
        *(inception_2015, open_clip_image, open_clip_text, timm_model),
    )
}
FOREIGN = frozenset({"open_clip_image", "open_clip_text", "timm_model"})
"""Encoders whose packages the tests do not install."""


def with_packages(names: Iterable[str]) -> list[Any]:
    """Parameters of a test, of which some need further packages."""
    return [pytest.param(name, marks=[pytest.mark.foreign] * (name in FOREIGN)) for name in names]
