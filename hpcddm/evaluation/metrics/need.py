"""Parts of an evaluator's measurements that metrics read; like the base of the metrics, it imports little."""

from enum import Enum


class Need(Enum):
    """Part of an `ImageSet` that a metric reads; the value is the name of the field."""

    LABELS = "labels"
    AGREED = "agreed"
    FEATURES = "features"
    LOGITS = "logits"
    TEXT = "text"
    SPREAD = "spread"
