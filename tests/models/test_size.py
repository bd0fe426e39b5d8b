from types import SimpleNamespace

import pytest

from hpcddm import plugins

SIZES = {"dit": {"heads": 3, "patch": 4}, "router_dit": {"heads": 3, "patch": 4}, "small_cnn": {"features": 24}}


@pytest.mark.parametrize("name", plugins.names("models"))
@pytest.mark.parametrize("width", [24, 48])
@pytest.mark.parametrize("channels, side, classes", [(1, 28, 10), (3, 32, 7)])
def test_the_parameters_told_without_torch_are_those_of_the_network(name, width, channels, side, classes):
    data = SimpleNamespace(channels=channels, image_size=side, num_classes=classes)
    depth = {} if "features" in SIZES[name] else {"depth": 2}
    settings = plugins.settings_class("models", name)(name=name, width=width, **depth, **SIZES[name])
    network = plugins.load("models", name).build(settings, data, 5)
    assert settings.parameters(data, 5) == sum(parameter.numel() for parameter in network.parameters())
