"""Layouts of folders with weights, as public packages write them."""

from hpcddm.config.weights import WeightsLayout

CONFIG = "config.json"
VOCABULARY = ("tokenizer.json", "spiece.model", "merges.txt")
TOKENIZER = ("added_tokens.json", "special_tokens_map.json", "tokenizer_config.json", "vocab.json")
_MODEL = ("model.safetensors", "model-*-of-*.safetensors", "pytorch_model.bin", "pytorch_model-*-of-*.bin")
_PARTS = ("model.safetensors.index.json", "pytorch_model.bin.index.json")

TRANSFORMERS_IMAGE = WeightsLayout(CONFIG, _MODEL, (CONFIG,), optional=(*_PARTS, "preprocessor_config.json"))
TRANSFORMERS_TEXT = WeightsLayout(CONFIG, _MODEL, (CONFIG,), VOCABULARY, (*_PARTS, *TOKENIZER))
DIFFUSERS = WeightsLayout(CONFIG, ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin"), (CONFIG,))
INCEPTION = WeightsLayout(
    None,
    (
        *("weights-inception-2015-12-05-6726825d.pth", "pt_inception-2015-12-05-6726825d.pth"),
        *("*.safetensors", "*.pth"),
    ),
)
TIMM = WeightsLayout(CONFIG, ("model.safetensors", "pytorch_model.bin"), (CONFIG,))
OPEN_CLIP = WeightsLayout(
    "open_clip_config.json",
    ("open_clip_model.safetensors", "open_clip_pytorch_model.bin", "*.safetensors", "*.pt", "*.bin"),
    optional=(*VOCABULARY, *TOKENIZER),
)
