from types import SimpleNamespace

import pytest
import torch

from hpcddm import plugins
from tests.models.examples import combinations, label, settings

TEXT = SimpleNamespace(tokens=3, encoder=SimpleNamespace(width=20))
UNTRAINED = [name for name in plugins.names("models") if not plugins.settings_class("models", name).trained]


@pytest.mark.parametrize("name, options", combinations("denoiser", "router", "classifier"), ids=label)
@pytest.mark.parametrize("width", [24, 48])
@pytest.mark.parametrize("channels, side, classes", [(1, 28, 10), (3, 32, 7)])
def test_the_parameters_told_without_torch_are_those_of_the_network(name, options, width, channels, side, classes):
    data = SimpleNamespace(channels=channels, image_size=side, num_classes=classes, text=TEXT)
    init_embedding = settings(name, width=width, **options)
    with torch.device("meta"):
        network = plugins.load("models", name).build(init_embedding, data, 5)
    assert init_embedding.parameters(data, 5) == sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("name", UNTRAINED)
def test_the_numbers_told_without_torch_are_those_that_are_stored(name):
    data = SimpleNamespace(channels=3, image_size=32, num_classes=7)
    settings_of_it = settings(name)
    network = plugins.load("models", name).build(settings_of_it, data, 5)
    assert settings_of_it.parameters(data, 5) == sum(value.numel() for value in network.state_dict().values())
