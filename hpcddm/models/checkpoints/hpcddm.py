"""hpcddm's layout: the weights of a unit of a run, or a file that `hpcddm convert` wrote."""

from typing import Any

from torch import Tensor

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.models import DenoiserModelSettings, LayoutSettings
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.config.schema import validate
from hpcddm.errors import ConfigError, UserError
from hpcddm.models.checkpoints.base import CheckpointContent, CheckpointInfo, CheckpointLayout


class HpcddmLayoutSettings(LayoutSettings):
    """Variant without settings."""


class HpcddmLayout(CheckpointLayout[HpcddmLayoutSettings]):
    """Tensors under the names that our networks give them."""

    def recognises(self, stored: CheckpointContent) -> bool:
        return stored.tensors.keys() >= {"trunk.embed_patch.weight", "head.weight"}

    def load(self, stored: CheckpointContent, like: Any) -> tuple[dict[str, Tensor], CheckpointInfo]:
        """Return the tensors as they are and describe their network; `like` is not used.

        Raises `UserError` when neither the file nor the manifest next to it describes the denoiser.
        """
        if "objective" not in stored.description:
            raise UserError(
                f"{stored.path}: nothing says what denoiser this is;"
                " name the folder that its training wrote, RUN/train/UNIT, with the manifest in it"
            )
        try:
            model = validate(DenoiserModelSettings, stored.description["model"], "model")
            objective = validate(ObjectiveSettings, stored.description["objective"], "objective")
            data = stored.description["data"]
            form, encoder = ConditionForm(data["condition"]), data.get("encoder")
            info = CheckpointInfo(
                model, data["channels"], data["num_classes"] or 0, objective, data["image_size"], form, encoder
            )
        except (KeyError, TypeError, ValueError, ConfigError) as error:
            raise UserError(f"{stored.path}: written by another version of hpcddm ({error})") from None
        return dict(stored.tensors), info
