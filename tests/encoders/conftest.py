"""Pretrained weights for tests: from the user's cache, else fetched once; no network is a failure in CI only."""

import os

import pytest

from hpcddm import plugins, weights
from hpcddm.commands.prefetch import fetch
from hpcddm.errors import UserError


@pytest.fixture(scope="session")
def fetched(tmp_path_factory):
    """A function that makes sure that the weights of an encoder are in the cache."""
    own = tmp_path_factory.mktemp("cache")

    def ensure(name: str) -> None:
        for one in plugins.settings_class("encoders", name).weights:
            if weights.what_is_wrong(one, weights.kept_file(one)) is None:
                continue
            path = weights.kept_file(one, own)
            if weights.what_is_wrong(one, path):
                try:
                    fetch(one, path)
                except UserError as error:
                    if "CI" in os.environ:
                        raise
                    pytest.skip(str(error))
            os.environ[weights.VARIABLE] = str(own)

    before = os.environ.get(weights.VARIABLE)
    yield ensure
    os.environ.pop(weights.VARIABLE, None)
    if before is not None:
        os.environ[weights.VARIABLE] = before
