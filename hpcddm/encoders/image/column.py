"""Features as a column holds them: float16, every value finite."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float16

from hpcddm.data.columns import Numbers
from hpcddm.data.reader import Reader
from hpcddm.data.settings import ImageShape
from hpcddm.encoders.image.base import SampleEncoder
from hpcddm.errors import require

FEATURE_TYPE = np.dtype("<f2")


def features_of(
    encoder: SampleEncoder[Any], data: ImageShape, reader: Reader, numbers: Numbers, key_of: Callable[[int], str]
) -> Float16[np.ndarray, "n d"]:
    """Compute the features of some samples; key_of: key of the sample at a place among the numbers.

    Raises `UserError` naming the encoder, and the first sample whose features are no float16 values.
    """
    name, dimensions = f"encode.encoder: {encoder.settings.name}", encoder.settings.dimensions(data)
    computed = encoder.features(reader, numbers)
    count = computed.shape[1]
    require(count == dimensions, f"{name}: {count} features and not the {dimensions} of its settings")
    # Values beyond the range become infinite, which is looked for.
    with np.errstate(over="ignore"):
        features = computed.astype(FEATURE_TYPE)
    is_finite = np.isfinite(features).all(1)
    if not is_finite.all():
        first = int(is_finite.argmin())
        require(
            False,
            f"{name}: features are not finite: those of sample {key_of(first)} reach {np.abs(computed[first]).max():g},"
            f" and a column holds float16, up to {np.finfo(FEATURE_TYPE).max:g}; look at the sample, the weights and"
            " their precision",
        )
    return features
