"""Quotients of distances of samples and of real images, finite for every input."""

import math
import warnings

LARGEST = 1e6
"""Value of a quotient whose denominator is zero, and of those that are larger."""
ZERO = 1e-12
"""Largest distance, relative to the scale of the features, that counts as zero."""


def ratio(numerator: float, denominator: float, scale: float = 0.0) -> float:
    """Divide two distances that are not negative; warns where the second is zero.

    Args:
        numerator: Distance of the samples.
        denominator: Distance of the real images.
        scale: Spread of the features in the same unit, beside which distances may be mere rounding.

    Returns:
        The quotient, at most 1e6; 1 where both distances are zero, NaN where one is undefined without a tenth.
    """
    if math.isnan(numerator + denominator):
        return math.nan
    negligible = ZERO * scale
    if denominator > negligible:
        return min(numerator / denominator, LARGEST)
    warnings.warn(f"a distance of real images is zero; the ratio to it is 1, or {LARGEST:.0e}", stacklevel=3)
    return 1.0 if numerator <= negligible else LARGEST
