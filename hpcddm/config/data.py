"""The key `data` of an experiment: the source of the images, and their form for a model."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from hpcddm.config import class_names, variants
from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.data_shapes import Shape
from hpcddm.config.data_variants import AugmentationSettings, OrderSettings, ReadingSettings, TransformSettings
from hpcddm.config.schema import PATH, Fraction, PathSetting, Positive, StrictModel, default_variant
from hpcddm.config.sources import SourceSettings
from hpcddm.config.spaces import SpaceSettings


class TableSettings(StrictModel):
    """Table with values of the samples, a row per key: CSV, JSON lines or parquet."""

    file: PathSetting
    """The table, or a folder with its parts, such as the parquet that img2dataset writes for every tar."""
    key: str = "key"
    """Column of the samples' keys."""
    content_hash: str | None = None
    """The SHA-256 of its content; filled in by submit, so that other values are never taken for these."""


class DataSettings(StrictModel):
    """Source of the images, and their form for a model."""

    not_hashed: ClassVar[frozenset[str]] = frozenset(
        {"augmentations", "class_names", "condition", "duplicates", "max_broken_share", "order", "read_from", "space"}
    )
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"filter", "table", "transform"})

    source: SourceSettings
    image_size: Positive = 32
    channels: Literal[1, 3] = 3
    num_classes: Positive | None = None
    """Number of classes; without it labels are ignored."""
    class_names: Annotated[list[str] | None, PATH] = None
    """Names of the classes 0, 1, ..., or the file that lists them, which is read at once; by default the source's."""
    shards: Positive = 4
    """Tars that hold the training images; units of the stages shard, encode and assign are ranges of them.

    Of tars that are adopted, submit counts them, and those of the held-out images.
    """
    heldout_shards: Positive = 1
    filter: str | None = None
    """Condition on a sample's values, such as 'aesthetic >= 5 and width >= 256'; without it all samples are kept."""
    table: TableSettings | None = None
    """Further values of the samples, by key, for `keep`."""
    content_hash: str | None = None
    """Hash of the source's content; filled in by submit, so that other images are never taken for these."""
    max_broken_share: Fraction = 0.001
    """Share of the samples that may be broken: these are listed and left out."""
    duplicates: Literal["refuse", "drop"] = "refuse"
    """Samples whose key another one has: they stop the run, or the first one is kept, training samples first."""
    condition: ConditionSettings = default_variant("class_label")
    """Condition of the networks: nothing, the class of an image, or text."""
    order: OrderSettings = default_variant("uniform")
    """Order in which every training visits its samples, each once in an epoch."""
    read_from: ReadingSettings = default_variant("shards")
    """Method by which trainings read their images; it changes no bit, and no unit becomes outdated."""
    transform: TransformSettings = default_variant("centre_crop")
    """Transform of every picture to a square of `image_size`."""
    augmentations: list[AugmentationSettings] = []
    """Random changes of the training images of experts, monolith, student and router, in their order."""
    space: SpaceSettings = default_variant("pixels")
    """Space of denoisers, routers and samplers; clustering and evaluation always use pixels."""

    @field_validator("class_names", mode="before")
    @classmethod
    def _read_names(cls, value: Any) -> Any:
        """Take the names in a file for its path, so that a run keeps them whatever becomes of the file."""
        try:
            return class_names.read_names(Path(value)) if isinstance(value, str) else value
        except ValueError as error:
            raise PydanticCustomError("variant", "{text}", {"text": str(error)}) from None

    @field_validator("class_names")
    @classmethod
    def _check_names(cls, value: list[str] | None) -> list[str] | None:
        try:
            return None if value is None else class_names.checked_names(value)
        except ValueError as error:
            raise PydanticCustomError("variant", "{text}", {"text": str(error)}) from None

    @field_validator("source", mode="before")
    @classmethod
    def _several(cls, value: object) -> object:
        """Take a list of sources for the one that has them all."""
        if not isinstance(value, list):
            return value
        if not value:
            raise PydanticCustomError("variant", "an empty list; name at least one source in it")
        adopting = {name for name, own in variants.settings_classes(SourceSettings).items() if own.uses_existing_tars}
        has_tars = any(isinstance(entry, dict) and entry.get("name") in adopting for entry in value)
        return {"name": "tar_collections" if has_tars else "collections", "sources": value}

    @property
    def x_shape(self) -> Shape:
        """Shape (C, H, W) of x in the space."""
        return self.space.shape(self.channels, self.image_size)
