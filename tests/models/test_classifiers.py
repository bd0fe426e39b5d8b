from types import SimpleNamespace

import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.models import ClassifierModelSettings
from hpcddm.models.base import Classifier
from tests.diffusion.spaces.examples import network_data
from tests.models.examples import losses_of

each_classifier = pytest.mark.parametrize("name", variants.list_variants("models", ClassifierModelSettings))


def build(name, size=28, **changed):
    data = network_data(1, size)
    torch.manual_seed(0)
    return variants.create(Classifier, ClassifierModelSettings.model_validate({"name": name} | changed), data, 10)


@each_classifier
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_and_features(name, dtype):
    model = build(name, width=16, features=24).to(dtype)
    images = torch.randn(3, 1, 28, 28)
    assert model(images).shape == (3, 10)
    assert model.features(images).shape == (3, 24)
    assert model(images).dtype == model.features(images).dtype == torch.float32


@each_classifier
def test_an_images_features_depend_on_no_other_image(name):
    model = build(name, width=8)
    images = torch.randn(5, 1, 28, 28)
    torch.testing.assert_close(model.features(images)[3:4], model.features(images[3:4]), rtol=1e-4, atol=1e-5)


@each_classifier
def test_learns(name):
    model = build(name, size=8, width=8)
    labels = torch.arange(40) % 10
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(10, 1, 8, 8, generator=generator)
    images = centres[labels] + 0.3 * torch.randn(40, 1, 8, 8, generator=generator)
    losses_of(model, lambda: torch.nn.functional.cross_entropy(model(images), labels), 30)
    assert (model(images).argmax(1) == labels).float().mean() > 0.95


def test_small_cnn_refuses_images_that_vanish():
    settings = variants.settings_class("models", "small_cnn")(name="small_cnn")
    with pytest.raises(ValueError, match="8 x 8"):
        settings.check(SimpleNamespace(data=SimpleNamespace(image_size=7)))
