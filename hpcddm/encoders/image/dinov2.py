"""DINOv2, a vision transformer trained without labels (Oquab et al., arXiv 2304.07193), as transformers runs it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from hpcddm.config import weights
from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.image_encoders import label
from hpcddm.config.schema import Positive
from hpcddm.config.weights import ImageNetworkSettings, WeightsLayout
from hpcddm.encoders.image.network_encoder import NetworkEncoder, Preparation
from hpcddm.encoders.optional_packages import from_pretrained, import_package, load_verified
from hpcddm.encoders.weights_layouts import TRANSFORMERS_IMAGE
from hpcddm.errors import UserError
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.foreign_json import ForeignJson

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RESIZED, SIDE = 256, 224
"""Preparation by the authors, bicubic; a preprocessor_config.json replaces it."""
BANDS = Annotated[list[float], Field(min_length=3, max_length=3)]
"""Type of one number for each colour."""
INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}
"""By their numbers in Pillow."""
SIZES = {384: "s", 768: "b", 1024: "l", 1536: "g"}
"""Letters of the published sizes, by width."""


class DinoV2Settings(ImageNetworkSettings):
    """Number of features `width` (384 of small, 768 of base, 1024 of large, 1536 of giant), and what is taken as them.

    `pooling` takes the class token, or the mean of the patches' tokens, both after the last norm.
    """

    layout: ClassVar[WeightsLayout] = TRANSFORMERS_IMAGE
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"size"})

    width: Positive = 1024
    pooling: Literal["cls", "mean"] = "cls"
    size: Annotated[int, Field(gt=0, multiple_of=14)] | None = None
    """Side that whole images are resized to, nothing cut off: 224 as for published distances (arXiv 2306.04675).

    Without it images are prepared as for recognition: by preprocessor_config.json, or to 256 and cut to 224.
    """

    def dimensions(self, data: ImageShape) -> int:
        return self.width

    def check_config(self, config: ForeignJson) -> None:
        """Raise ValueError for weights of another network or width, `UserError` for a preparation we cannot follow."""
        if not str(config.get("model_type")).startswith("dinov2"):
            raise ValueError(f"config.json has model_type {config.get('model_type')} and not dinov2")
        if config.get("hidden_size") != self.width:
            raise ValueError(f"width is {self.width} and config.json has hidden_size {config.get('hidden_size')}")
        stated_preparation(self)

    def evaluator_label(self) -> str:
        config = weights.checked_config(self)
        size = SIZES.get(self.width, f"w{self.width}-p") + str(config.take("patch_size", int, 14))
        registers = "reg" if config["model_type"] == "dinov2_with_registers" else ""
        pooled = "" if self.pooling == "cls" else self.pooling
        resized, side, _, _, interpolation = stated_preparation(self)
        # Without `size` the cut is always named: positions of patches are those of another code.
        prepared = resized if self.size is not None else f"{resized}-crop-{side}"
        return label("dinov2", size, registers, pooled, self.precision_label, prepared, interpolation, "aa")


def stated_preparation(settings: DinoV2Settings) -> tuple[int, int, Sequence[float], Sequence[float], str]:
    """Return the preparation that the JSON beside the weights states, or the authors'; `size` replaces its sides.

    The values are those of a `Preparation`, whose import is slow.
    Raises `UserError` naming file and key for a form that cannot be followed.
    """
    stated = _stated_values(settings)
    resized = _stated_side(stated, "size", "shortest_edge", RESIZED)
    side = _stated_side(stated, "crop_size", None, SIDE)
    number = stated.take("resample", int, 3)
    if number not in INTERPOLATIONS:
        raise stated.error("resample", f"is {number}; known are {INTERPOLATIONS}")
    return (
        settings.size or (resized if stated.take("do_resize", bool, True) else side),
        settings.size or (side if stated.take("do_center_crop", bool, True) else resized),
        stated.take("image_mean", BANDS, MEAN),
        stated.take("image_std", BANDS, DEVIATION),
        INTERPOLATIONS[number],
    )


def _stated_values(settings: DinoV2Settings) -> ForeignJson:
    """Return the JSON of the preparation in the folder of the weights; empty without it, and where `size` is set."""
    file = settings.weights.place / "preprocessor_config.json"
    if settings.size is not None or not file.exists():
        return ForeignJson({}, file)
    try:
        return ForeignJson.read(file)
    except Unreadable as error:
        raise UserError(
            f"{settings.weights.place}: weights of dinov2: {file.name} {error.reason}; copy it again"
        ) from None


def _stated_side(stated: ForeignJson, key: str, edge: str | None, otherwise: int) -> int:
    """Return a side of the preparation: a plain number, as the shortest `edge`, or as equal height and width."""
    value = stated.take(key, Positive | dict[str, Positive], otherwise)
    if isinstance(value, int):
        return value
    sides = set(value.values())
    if len(sides) > 1 or value.keys() not in ({edge}, {"height", "width"}):
        raise stated.error(key, f"is {value}; needs one number, or an equal height and width")
    return int(sides.pop())


class DinoV2(NetworkEncoder[DinoV2Settings]):
    """Tokens of the last layer, pooled."""

    def __init__(self, settings: DinoV2Settings) -> None:
        super().__init__(settings)
        transformers = import_package("transformers", settings)
        # The variant with registers is a different network.
        with_registers = weights.read_config(settings).get("model_type") == "dinov2_with_registers"
        kind = transformers.Dinov2WithRegistersModel if with_registers else transformers.Dinov2Model
        self.network = load_verified(settings, lambda folder: self._load(kind, folder), self.device)
        self.first_patch = 1 + getattr(self.network.config, "num_register_tokens", 0)
        self.preparation = Preparation(*stated_preparation(settings))

    def _load(self, kind: Any, folder: Path) -> Any:
        network, side = from_pretrained(kind, folder), self.settings.size
        # The authors' network with registers resamples as transformers does.
        if side is not None and not getattr(network.config, "num_register_tokens", 0):
            embeddings = network.embeddings
            resampled = resample_positions(embeddings.position_embeddings.data, side // network.config.patch_size)
            embeddings.position_embeddings = nn.Parameter(resampled)
        return network

    def encode_prepared(self, planes: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        tokens = self.network(planes).last_hidden_state
        return tokens[:, 0] if self.settings.pooling == "cls" else tokens[:, self.first_patch :].mean(1)


def resample_positions(positions: Float[Tensor, "1 n d"], count: int) -> Float[Tensor, "1 m d"]:
    """Resample the embeddings of a class token and a square of patches to count x count patches, as the authors do it.

    Their code scales by (count + 0.1) / M, M being the number of patches per side in training, and published features
    depend on it; transformers scales by count / M.
    """
    patches = positions[:, 1:]
    trained = math.isqrt(patches.shape[1])
    if trained == count:
        return positions
    square = patches.unflatten(1, (trained, trained)).permute(0, 3, 1, 2).float()
    scale = (count + 0.1) / trained
    resampled = F.interpolate(square, scale_factor=(scale, scale), mode="bicubic")
    return torch.cat([positions[:, :1], resampled.flatten(2).mT.to(positions.dtype)], 1)
