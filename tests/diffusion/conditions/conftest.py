"""Pretrained weights, as the tests of the encoders have them."""

from tests.encoders.conftest import fetched

__all__ = ["fetched"]
