import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.models import (
    ClassifierModelSettings,
    DenoiserModelSettings,
    PriorRouterSettings,
    RouterModelSettings,
)
from tests.diffusion.spaces.examples import network_data
from tests.models.examples import combinations, label, network, settings

UNTRAINED = variants.list_variants("models", PriorRouterSettings)


BASES = (DenoiserModelSettings, RouterModelSettings, ClassifierModelSettings)


@pytest.mark.parametrize("name, options", combinations(*BASES), ids=label)
@pytest.mark.parametrize("width, channels, side, classes", [(24, 1, 28, 10), (48, 3, 32, 7)])
def test_the_parameters_told_without_torch_are_those_of_the_network(name, options, width, channels, side, classes):
    data = network_data(channels, side, classes, options.get("condition", "class"))
    chosen = settings(name, width=width, **options)
    with torch.device("meta"):
        built = network(chosen, data, 5)
    outputs = () if isinstance(chosen, DenoiserModelSettings) else (5,)
    assert chosen.parameters(data, *outputs) == sum(parameter.numel() for parameter in built.parameters())


@pytest.mark.parametrize("name", UNTRAINED)
@pytest.mark.parametrize("form", ["class", "none", "text"])
def test_the_numbers_told_without_torch_are_those_that_are_stored(name, form):
    data = network_data(3, 32, 7, form)
    settings_of_it = settings(name, prior="natural")
    built = network(settings_of_it, data, 5)
    assert settings_of_it.parameters(data, 5) == sum(value.numel() for value in built.state_dict().values())
