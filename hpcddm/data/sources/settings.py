"""Settings that all sources of images have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class SourceSettings(VariantSettings):
    """Settings of a source of images; the files and folders that hold it are of the type `PathSetting`."""

    room: ClassVar[str] = "data/sources"
