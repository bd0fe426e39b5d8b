"""What every encoder of images promises, whichever it is."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from hpcddm.config import variants
from hpcddm.config.image_encoders import ImageEncoderSettings, SampleEncoderSettings
from hpcddm.encoders.image import network_encoder
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.errors import UserError
from tests.encoders.networks import SAVED, with_packages

SHAPES = [(28, 28, 1), (28, 28, 3), (64, 64, 3), (96, 96, 1), (200, 200, 3)]
SHAPES += [(side, side, 3) for side in (1, 2, 512)]

COUNTS = {"efficientnet_lite0": 70, "pixels": 70}
"""Numbers of images that are several batches; for networks of packages they are smaller here."""


def images(count, shape):
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


@pytest.fixture(params=with_packages(variants.list_variants("encoders/image", ImageEncoderSettings)), scope="module")
def encoder(request, fetched, tiny):
    """The settings and the function of one encoder; networks of packages take three images at once."""
    if request.param in SAVED:
        experiment = tiny(request.param)
    else:
        fetched("image", request.param)
        experiment = variants.settings_class("encoders/image", request.param)(name=request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_encoder, "IMAGES_AT_ONCE", 3)
        yield experiment, variants.create(ImageEncoder, experiment).encode


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_images_of_any_size_and_colour_become_as_many_values_as_it_says(encoder, shape):
    settings, encode = encoder
    if settings.name == "pixels":
        settings, encode = (few := settings.model_copy(update={"size": 1})), variants.create(ImageEncoder, few).encode
    features = encode(images(2, shape))
    data = SimpleNamespace(image_size=shape[0], channels=shape[2])
    assert features.dtype == np.float32 and features.shape == (2, settings.dimensions(data))
    assert np.isfinite(features).all() and np.ptp(features, axis=0).max() > 0


def test_an_image_is_encoded_to_the_same_bits_and_as_itself_whatever_stands_beside_it(encoder):
    settings, encode = encoder
    some = images(COUNTS.get(settings.name, 5), (28, 28, 3))
    together, alone = encode(some), encode(some[-1:])
    np.testing.assert_array_equal(encode(some), together)
    np.testing.assert_allclose(together[-1:], alone, rtol=1e-5, atol=1e-5 * np.abs(alone).max())


def test_grey_is_the_colour_with_three_equal_bands(encoder):
    _, encode = encoder
    grey = images(4, (28, 28, 1))
    one, three = encode(grey), encode(grey.repeat(3, axis=3))
    np.testing.assert_allclose(three.reshape(4, -1, one.shape[1]).mean(axis=1), one, rtol=1e-5, atol=1e-5)


def test_its_label_has_the_letters_of_a_key_and_names_the_size(encoder):
    said = encoder[0].evaluator_label()
    assert re.fullmatch(r"[a-z0-9.-]+", said) and re.search(r"\d", said)


def test_logits_and_texts_are_refused_where_the_settings_say_so(encoder):
    settings, encode = encoder
    own = encode.__self__
    for has, call in (
        (settings.has_head, lambda: own.encode_with_logits(images(2, (28, 28, 3)))[1]),
        (settings.has_text, lambda: own.text_features(["a cat", "two dogs on a mat"])),
    ):
        if has:
            values = call()
            assert values.dtype == np.float32 and len(values) == 2 and np.ptp(values, axis=0).max() > 0
        else:
            with pytest.raises(UserError, match=f"encoder {settings.name}: its network does not"):
                call()


@pytest.mark.usefixtures("load_variants")
def test_an_encoder_that_needs_more_of_samples_than_their_images_is_none_of_images():
    bases = (SampleEncoderSettings, ImageEncoderSettings)
    of_samples, of_images = (variants.list_variants("encoders/image", base) for base in bases)
    assert set(of_samples) - set(of_images) == {"synthetic_load"}
