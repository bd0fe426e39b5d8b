"""Parts of an evaluator's measurements that metrics read, of how many images; it imports little, as `base` does."""

from enum import Enum

NEIGHBOUR_IMAGES = 10_000
"""Real images among which ADM's evaluator looks for neighbours. With more images several units look for them."""


class Need(Enum):
    """Part of an `ImageSet` that a metric reads; the value is the name of the field."""

    LABELS = "labels"
    AGREED = "agreed"
    FEATURES = "features"
    LOGITS = "logits"
    TEXT = "text"
    SPREAD = "spread"
