"""Our own layout: the weights of a unit of a run, or a file that `hpcddm convert` wrote."""

from typing import Any

import torch

from hpcddm import plugins
from hpcddm.errors import ConfigError, UserError
from hpcddm.models.checkpoints.reading import CheckpointInfo, Stored
from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Variant without settings."""


def recognises(stored: Stored) -> bool:
    """Tell if these are the tensors of this layout."""
    return stored.tensors.keys() >= {"trunk.embed_patch.weight", "head.weight"}


def load(stored: Stored, like: Any) -> tuple[dict[str, torch.Tensor], CheckpointInfo]:
    """Return the tensors as they are and describe their network; `like` is not used.

    Raises `UserError` when neither the file nor the manifest beside it describes the denoiser.
    """
    if "objective" not in stored.description:
        raise UserError(
            f"{stored.path}: nothing says what denoiser this is;"
            " name the folder that its training wrote, RUN/train/UNIT, with the manifest in it"
        )
    try:
        model, objective = stored.description["model"], stored.description["objective"]
        model = plugins.settings_class("models", model["name"])(**model)
        objective = plugins.settings_class("objectives", objective["name"])(**objective)
        data = stored.description["data"]
        info = CheckpointInfo(
            model, data["channels"], data["num_classes"], objective, data["image_size"], data.get("encoder")
        )
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise UserError(f"{stored.path}: written by another version of hpcddm ({error})") from None
    return dict(stored.tensors), info
