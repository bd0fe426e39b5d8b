"""Settings that all clusterings have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class ClusteringSettings(VariantSettings):
    """Settings of a clustering of the training images."""

    room: ClassVar[str] = "clusterings"
    needs_features: ClassVar[bool] = True
    """False for a clustering that looks at no features: then nothing is encoded."""
