"""Parts of the samples that metrics read; light, as the contract of a metric is."""

from enum import Enum


class Need(Enum):
    """Part of an `ImageSet` that a metric reads, by the name of its field."""

    LABELS = "labels"
    AGREED = "agreed"
    FEATURES = "features"
    STATISTICS = "statistics"
