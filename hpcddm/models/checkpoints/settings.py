"""Settings that all layouts of checkpoints have in common; there is nothing to set."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class LayoutSettings(VariantSettings):
    """Name of a layout, as `hpcddm convert --layout` takes it."""

    room: ClassVar[str] = "models/checkpoints"
