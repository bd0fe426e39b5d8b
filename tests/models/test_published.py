"""That the named sizes are the published networks: the numbers that `tests.benchmarks.backbones` prints."""

import pytest

from tests.benchmarks.backbones import PUBLISHED, gmacs, parameters

OTHER_SHAPE = 0.02
"""How far the parameters of a network may be off that has the published one's size only."""


def last_digit(printed: str) -> float:
    """One unit in the last place of a printed number."""
    return 10.0 ** -len(printed.partition(".")[2])


@pytest.mark.parametrize("backbone", PUBLISHED, ids=lambda one: one.name)
def test_parameters_are_the_published_ones(backbone):
    published = float(backbone.parameters)
    tolerance = OTHER_SHAPE * published if backbone.variant == "mmdit" else last_digit(backbone.parameters)
    assert abs(parameters(backbone) - published) < tolerance


@pytest.mark.parametrize("backbone", [one for one in PUBLISHED if one.gmacs], ids=lambda one: one.name)
def test_operations_are_the_published_ones(backbone):
    published = float(backbone.gmacs)
    assert abs(gmacs(backbone) - published) < 0.0005 * published + last_digit(backbone.gmacs) / 2
