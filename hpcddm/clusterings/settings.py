"""Settings that all clusterings have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class ClusteringSettings(VariantSettings):
    """Settings of a clustering of the training images by their features."""

    room: ClassVar[str] = "clusterings"
