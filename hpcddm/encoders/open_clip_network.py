"""Networks by open_clip, image and text tower together, from a local folder."""

import fnmatch
import logging
from pathlib import Path
from typing import Any

import torch

from hpcddm.config import weights
from hpcddm.encoders.open_clip_settings import OpenClipSettings
from hpcddm.encoders.packages import loaded, package


def source(own: OpenClipSettings) -> str:
    """Return open_clip's name of the network: of its own architecture, or of the description in the folder."""
    return own.architecture or f"local-dir:{own.weights.place}"


def network(own: OpenClipSettings, device: torch.device) -> Any:
    """Load the network; raises `UserError` naming the folder and what is wrong with it."""
    open_clip = package("open_clip", own)
    # It says on every start that weights are not loaded, before they are.
    logging.getLogger().setLevel(logging.ERROR)

    def load(folder: Path) -> Any:
        names = weights.files(own)
        checkpoint = next(name for pattern in own.layout.weights for name in fnmatch.filter(names, pattern))
        model = open_clip.create_model(source(own), load_weights=False)
        open_clip.load_checkpoint(model, str(folder / checkpoint), strict=True, weights_only=True)
        return model

    return loaded(own, load, device)
