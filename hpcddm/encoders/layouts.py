"""Layouts of folders with weights, as public packages write them."""

from hpcddm.config.weights import Layout

CONFIG = "config.json"
VOCABULARY = ("tokenizer.json", "spiece.model", "merges.txt")
TOKENIZER = ("added_tokens.json", "special_tokens_map.json", "tokenizer_config.json", "vocab.json")
_MODEL = ("model.safetensors", "model-*-of-*.safetensors", "pytorch_model.bin", "pytorch_model-*-of-*.bin")
_PARTS = ("model.safetensors.index.json", "pytorch_model.bin.index.json")

TRANSFORMERS_IMAGE = Layout(CONFIG, _MODEL, (CONFIG,), further=(*_PARTS, "preprocessor_config.json"))
TRANSFORMERS_TEXT = Layout(CONFIG, _MODEL, (CONFIG,), VOCABULARY, (*_PARTS, *TOKENIZER))
DIFFUSERS = Layout(CONFIG, ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin"), (CONFIG,))
TIMM = Layout(CONFIG, ("model.safetensors", "pytorch_model.bin"), (CONFIG,))
OPEN_CLIP = Layout(
    "open_clip_config.json",
    ("open_clip_model.safetensors", "open_clip_pytorch_model.bin", "*.safetensors", "*.pt", "*.bin"),
    further=(*VOCABULARY, *TOKENIZER),
)
