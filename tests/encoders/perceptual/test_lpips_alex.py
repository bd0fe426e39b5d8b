import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from hpcddm.config import pretrained, variants
from hpcddm.encoders.perceptual import lpips_alex
from hpcddm.encoders.perceptual.base import Perceptual
from hpcddm.errors import UserError
from tests.encoders.perceptual.images import SETS

PEER = json.loads(Path(__file__).with_name("lpips.json").read_text())
"""Distances by the package lpips 0.1.4; make_lpips.py wrote them."""


@pytest.fixture(scope="module")
def perceptual(fetched):
    """The metric with its weights."""
    fetched("perceptual", "lpips_alex")
    return variants.create(Perceptual, lpips_alex.LpipsAlexSettings(name="lpips_alex"))


@pytest.mark.parametrize("name", SETS)
def test_distances_are_those_of_the_authors_package(perceptual, name):
    features = perceptual.features(SETS[name])
    distances = perceptual.distances(features, features[:4])
    np.testing.assert_allclose(distances, np.array(PEER[name])[:, :4], atol=2e-6, rtol=1e-5)
    assert 0.001 < PEER[name][3][4] < PEER[name][3][2] < PEER[name][0][3]


def test_diversity_is_the_mean_over_pairs_and_of_one_image_repeated_nothing(perceptual):
    features = perceptual.features(SETS["64"])
    pairs = [PEER["64"][i][j] for i in range(5) for j in range(5) if i != j]
    assert perceptual.diversity(features) == pytest.approx(np.mean(pairs), rel=1e-5)
    assert perceptual.diversity(np.repeat(features[:1], 3, 0)) == 0
    with pytest.raises(ValueError, match="needs 2 images"):
        perceptual.diversity(features[:1])


def test_an_image_has_the_same_features_whatever_is_beside_it(perceptual, monkeypatch):
    together = perceptual.features(SETS["32"])
    monkeypatch.setattr(lpips_alex, "IMAGES_AT_ONCE", 2)
    np.testing.assert_allclose(perceptual.features(SETS["32"]), together, atol=1e-6)


def test_a_file_that_would_call_something_calls_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "called",)

    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps({"AlexNet_0": Evil()}))
    with pytest.raises(UserError, match=r"weights of lpips_alex: pathlib.\S+ is not an array; run: hpcddm prefetch"):
        lpips_alex._arrays(path)
    assert not (tmp_path / "called").exists()


def test_without_weights_the_command_is_told_that_fetches_them(tmp_path, monkeypatch):
    monkeypatch.setenv(pretrained.CACHE_VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match="lpips_alexnet-443c5bc35326b81e.pickle: missing; .* run: hpcddm prefetch"):
        lpips_alex.load_network()
