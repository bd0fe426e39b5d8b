"""Sets of images as an evaluation keeps them."""

import numpy as np

from hpcddm.evaluation.metrics.evaluation import ImageSet
from hpcddm.evaluation.metrics.statistics import Statistics


def image_set(features: np.ndarray, classes: int = 4) -> ImageSet:
    """Images with these features, in classes that take turns; the classifier sees four of five."""
    places = np.arange(len(features))
    return ImageSet(places % classes, places % 5 > 0, features, Statistics.from_features(features))
