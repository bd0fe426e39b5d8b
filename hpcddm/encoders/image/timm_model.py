"""Any image network of timm, by a folder as timm saves it for a hub; its features before the classifier."""

import math
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.image_encoders import label, preparation_label
from hpcddm.config.schema import Positive
from hpcddm.config.weights import ImageNetworkSettings, WeightsLayout, checked_config, list_files
from hpcddm.encoders.image.network_encoder import NetworkEncoder, Preparation
from hpcddm.encoders.optional_packages import import_package, load_verified, read_state_dict
from hpcddm.encoders.weights_layouts import TIMM
from hpcddm.errors import require
from hpcddm.files.foreign_json import ForeignJson

Shape = Annotated[list[Positive], Field(min_length=1)]


class TimmModelSettings(ImageNetworkSettings):
    """Number of features `width`, which is num_features in the folder's config.json."""

    layout: ClassVar[WeightsLayout] = TIMM

    width: Positive

    def dimensions(self, data: ImageShape) -> int:
        return self.width

    def check_config(self, config: ForeignJson) -> None:
        """Raise ValueError for a folder of another kind or width."""
        require("architecture" in config, "config.json names no architecture: timm has not written it", ValueError)
        if config.get("num_features") not in (None, self.width):
            raise ValueError(f"width is {self.width} and config.json has num_features {config['num_features']}")

    def evaluator_label(self) -> str:
        config = checked_config(self)
        inner = "pretrained_cfg." if "pretrained_cfg" in config else ""
        side = config.take(f"{inner}input_size", Shape, [3, 224, 224])[-1]
        resized = resized_side(side, config.take(f"{inner}crop_pct", Annotated[float, Field(gt=0)], 0.875))
        prepared = preparation_label(resized, side, config.take(f"{inner}interpolation", str, "bicubic"))
        return label("timm", config.take("architecture", str), self.precision_label, prepared)


def resized_side(side: int, share: float) -> int:
    """Return the side that images are resized to, if the network sees a share of it in the middle."""
    return math.floor(side / share)


class TimmModel(NetworkEncoder[TimmModelSettings]):
    """Pooled features."""

    def __init__(self, settings: TimmModelSettings) -> None:
        super().__init__(settings)
        timm = import_package("timm", settings)
        weights = next(name for name in list_files(settings) if name != settings.layout.config)

        def load(folder: Path) -> Any:
            # Left to itself, timm loads another file of the folder, and unpickles code in versions before 1.0.26.
            handed = {"source": "", "state_dict": read_state_dict(folder / weights)}
            source = f"local-dir:{folder}"
            return timm.create_model(source, pretrained=True, pretrained_cfg_overlay=handed, num_classes=0)

        self.network = load_verified(settings, load, self.device)
        prepared = timm.data.resolve_model_data_config(self.network)
        side = prepared["input_size"][-1]
        resized = resized_side(side, prepared["crop_pct"])
        mean, deviation, interpolation = (prepared[key] for key in ("mean", "std", "interpolation"))
        self.prepare_as_stated(Preparation(resized, side, mean, deviation, interpolation))
