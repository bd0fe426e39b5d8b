"""Sets of images as an evaluator measures them."""

import numpy as np

from hpcddm.evaluation.metrics.metric_inputs import ImageSet, MetricInputs


def image_set(features: np.ndarray, classes: int = 4) -> ImageSet:
    """Images with these features, in classes that take turns; every part is given, and follows from the features."""
    places = np.arange(len(features))
    return ImageSet(
        features=features,
        logits=features[:, :3],
        agreed=places % 5 > 0,
        text=features[:, 0] / 10,
        spread=np.abs(features[: max(len(features) // 4, 1), 0]),
        labels=places % classes,
    )


def inputs_of(samples: np.ndarray, real: np.ndarray, train: np.ndarray | None = None) -> MetricInputs:
    """What metrics are given of these features; the training images are those of `real` where none are named."""
    return MetricInputs(image_set(samples), image_set(real), image_set(real if train is None else train))
