"""Features as a column holds them: float16, every value finite."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float16, Float32

from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.image_encoders import SampleEncoderSettings
from hpcddm.errors import require

FEATURE_TYPE = np.dtype("<f2")


def as_column(
    encoder: SampleEncoderSettings,
    data: ImageShape,
    computed: Float32[np.ndarray, "n d"],
    key_of: Callable[[int], str],
) -> Float16[np.ndarray, "n d"]:
    """Convert computed features; key_of: key of the sample in a row.

    Raises `UserError` naming the encoder, and the first sample whose features do not fit in float16.
    """
    name, dimensions = f"encode.encoder: {encoder.name}", encoder.dimensions(data)
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
