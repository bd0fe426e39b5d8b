"""The key `data` of an experiment: the source of the images, and their form for a model."""

from typing import Any, ClassVar, Literal

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from hpcddm.config import variants
from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.schema import Fraction, PathSetting, Positive, StrictModel, VariantSettings, default_variant
from hpcddm.config.shapes import Shape
from hpcddm.config.sources import SourceSettings
from hpcddm.config.spaces import SpaceSettings


class OrderSettings(VariantSettings):
    """Order in which a training sees its samples."""

    room: ClassVar[str] = "data/orders"


class TransformSettings(VariantSettings):
    """Way in which a picture of any size becomes a square of `data.image_size`."""

    room: ClassVar[str] = "data/transforms"


class ReadingSettings(VariantSettings):
    """Way in which trainings read their images, which changes no bit of them."""

    room: ClassVar[str] = "data/readings"
    reads_copies: ClassVar[bool] = False
    """True where an expert reads the tars that the stage materialise makes of its list."""

    @property
    def drops_exif(self) -> bool:
        """Tell if copies lose the EXIF of their pictures."""
        return False


class AugmentationSettings(VariantSettings):
    """Random change of the images of a training, drawn again at every visit of a sample."""

    room: ClassVar[str] = "data/augmentations"

    def source_side(self, side: int) -> int:
        """Return the side of the squares that it would like to get for squares of `side`, which it makes of any."""
        return side

    def check(self, experiment: Any) -> None:
        """Refuse the same one twice: both would draw the same numbers."""
        if [own.name for own in experiment.data.augmentations].count(self.name) > 1:
            raise ValueError(f"{self.name} stands there twice; name it once")


class TableSettings(StrictModel):
    """Table of what is known of the samples, a row per key: CSV, JSON lines or parquet."""

    file: PathSetting
    """The table, or a folder with its parts, such as the parquet that img2dataset writes beside every tar."""
    key: str = "key"
    """Column of the samples' keys."""
    content: str | None = None
    """The SHA-256 of its content; filled in by submit, so that other values are never taken for these."""


class DataSettings(StrictModel):
    """Source of the images, and their form for a model."""

    not_hashed: ClassVar[frozenset[str]] = frozenset(
        {"augmentations", "broken", "condition", "duplicates", "order", "reading", "space"}
    )
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"keep", "table", "transform"})

    source: SourceSettings
    image_size: Positive = 32
    channels: Literal[1, 3] = 3
    num_classes: Positive | None = None
    """Number of classes; without it the images have no labels, or nothing looks at them."""
    shards: Positive = 4
    """Tars that hold the training images; units of the stages shard, encode and assign are ranges of them.

    Of tars that are adopted, submit counts them, and those of the held-out images.
    """
    heldout_shards: Positive = 1
    keep: str | None = None
    """Condition on what is known of a sample, such as 'aesthetic >= 5 and width >= 256'; without it all are kept."""
    table: TableSettings | None = None
    """Further values of the samples, by key, for `keep`."""
    content: str | None = None
    """Hash of the source's content; filled in by submit, so that other images are never taken for these."""
    broken: Fraction = 0.001
    """Share of the samples that may be broken: they are named, and left out."""
    duplicates: Literal["refuse", "drop"] = "refuse"
    """Samples whose key another one has: they stop the run, or the first one is kept, training samples first."""
    condition: ConditionSettings = default_variant("class_label")
    """Condition of the networks: nothing, the class of an image, or text."""
    order: OrderSettings = default_variant("uniform")
    """Order in which every training sees its samples, each once in an epoch."""
    reading: ReadingSettings = default_variant("indexed")
    """Way in which trainings read their images; it changes no bit, and makes nothing stale."""
    transform: TransformSettings = default_variant("centre_crop")
    """Way in which every picture becomes a square of `image_size`."""
    augmentations: list[AugmentationSettings] = []
    """Random changes of the training images of experts, monolith, student and router, in their order."""
    space: SpaceSettings = default_variant("pixels")
    """Space in which denoisers, routers and samplers see the images; clustering and measures always see pixels."""

    @field_validator("source", mode="before")
    @classmethod
    def _several(cls, value: object) -> object:
        """Take a list of sources for the one that has them all."""
        if not isinstance(value, list):
            return value
        if not value:
            raise PydanticCustomError("variant", "an empty list; name at least one source in it")
        adopting = {name for name, own in variants.settings_classes(SourceSettings).items() if own.adopts_tars}
        has_tars = any(isinstance(entry, dict) and entry.get("name") in adopting for entry in value)
        return {"name": "tar_collections" if has_tars else "collections", "of": value}

    @property
    def x_shape(self) -> Shape:
        """Shape (C, H, W) of x in the space."""
        return self.space.shape(self.channels, self.image_size)
