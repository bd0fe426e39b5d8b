from types import SimpleNamespace

import numpy as np
import pytest

from hpcddm.encoders.image.pixels import PixelFeatures, PixelFeaturesSettings

IMAGES = np.random.default_rng(0).integers(0, 256, (9, 28, 28, 3), dtype=np.uint8)


def test_each_value_is_the_mean_of_its_area():
    features = PixelFeatures(PixelFeaturesSettings(name="pixels", size=7)).encode(IMAGES)
    areas = IMAGES.reshape(9, 7, 4, 7, 4, 3).mean(axis=(2, 4)) / 255
    assert features.dtype == np.float32
    np.testing.assert_allclose(features.reshape(9, 3, 7, 7), areas.transpose(0, 3, 1, 2), atol=1e-6)


def test_refuses_to_enlarge():
    with pytest.raises(ValueError, match="32 exceeds"):
        PixelFeaturesSettings(name="pixels", size=32).check(SimpleNamespace(data=SimpleNamespace(image_size=28)))
