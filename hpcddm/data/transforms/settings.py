"""Settings that transforms have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class TransformSettings(VariantSettings):
    """Way in which a picture of any size becomes a square of `data.image_size`."""

    room: ClassVar[str] = "data/transforms"
