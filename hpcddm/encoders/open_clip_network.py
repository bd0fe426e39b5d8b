"""Networks by open_clip, image and text tower together, from a local folder."""

import fnmatch
import logging
from pathlib import Path
from typing import Any

import torch

from hpcddm.config import weights
from hpcddm.encoders.open_clip_settings import OpenClipSettings
from hpcddm.encoders.optional_packages import UNREADABLE, first_line, import_package, load_verified
from hpcddm.errors import UserError


def architecture_name(own: OpenClipSettings) -> str:
    """Return open_clip's name of the network: a built-in architecture, or the description in the folder."""
    return own.architecture or f"local-dir:{own.weights.place}"


def load_tokenizer(own: OpenClipSettings) -> Any:
    """Load the tokenizer of the network's text tower; raises `UserError` naming the folder and the fault."""
    open_clip = import_package("open_clip", own)
    by_transformers = own.described_network().take("model_cfg.text_cfg.hf_tokenizer_name", str, "")
    # The JSON may ask transformers to execute Python of its folder; what is passed here comes before it.
    own_code = {"trust_remote_code": False} if by_transformers else {}
    try:
        return open_clip.get_tokenizer(architecture_name(own), **own_code)
    except UNREADABLE as error:
        raise UserError(f"{own.weights.place}: no tokenizer of {own.name} ({first_line(error)})") from error


def load_network(own: OpenClipSettings, device: torch.device) -> Any:
    """Load the network; raises `UserError` naming the folder and what is wrong with it."""
    open_clip = import_package("open_clip", own)
    # At every start it warns that weights are not loaded, before they are.
    logging.getLogger().setLevel(logging.ERROR)

    def load(folder: Path) -> Any:
        names = weights.list_files(own)
        checkpoint = next(name for pattern in own.layout.weights for name in fnmatch.filter(names, pattern))
        model = open_clip.create_model(architecture_name(own), load_weights=False)
        open_clip.load_checkpoint(model, str(folder / checkpoint), strict=True, weights_only=True)
        return model

    return load_verified(own, load, device)
