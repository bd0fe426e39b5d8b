"""Settings that all sources of images have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class SourceSettings(VariantSettings):
    """Settings of a source of images: the folder that holds it."""

    room: ClassVar[str] = "data/sources"
    not_hashed: ClassVar[frozenset[str]] = frozenset({"folder"})

    folder: str
