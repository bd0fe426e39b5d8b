"""Weights for tests: pretrained ones from the user's cache, else fetched once (no network is a failure in CI only), and
tiny networks with random weights."""

import functools
import os
from typing import Any

import pytest

from hpcddm.commands.prefetch import fetch
from hpcddm.config import pretrained, variants
from hpcddm.errors import UserError
from tests.encoders.networks import SAVED


@pytest.fixture(scope="session")
def fetched(tmp_path_factory):
    """A function that makes sure that the weights of an encoder are in the cache."""
    own = tmp_path_factory.mktemp("cache")

    def ensure(room: str, name: str) -> None:
        for one in variants.settings_class(f"encoders/{room}", name).pretrained:
            if pretrained.defect(one, pretrained.cached_file(one)) is None:
                continue
            path = pretrained.cached_file(one, own)
            if pretrained.defect(one, path):
                try:
                    fetch(one, path)
                except UserError as error:
                    if "CI" in os.environ:
                        raise
                    pytest.skip(str(error))
            os.environ[pretrained.CACHE_VARIABLE] = str(own)

    before = os.environ.get(pretrained.CACHE_VARIABLE)
    yield ensure
    os.environ.pop(pretrained.CACHE_VARIABLE, None)
    if before is not None:
        os.environ[pretrained.CACHE_VARIABLE] = before


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A function that returns the settings of an encoder on the weights of a tiny network, which is saved once."""
    folder = tmp_path_factory.mktemp("networks")
    saved = functools.cache(lambda name: SAVED[name](folder / name))

    def settings(name: str, **changes: Any) -> Any:
        rooms = ("image", "text", "autoencoder")
        room = next(room for room in rooms if name in variants.list_variants(f"encoders/{room}"))
        return variants.settings_class(f"encoders/{room}", name).model_validate(saved(name) | changes)

    return settings
