"""Settings that orders have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class OrderSettings(VariantSettings):
    """Order in which a training sees its samples."""

    room: ClassVar[str] = "data/orders"
