import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from hpcddm.config import pretrained
from hpcddm.encoders.image import efficientnet_lite0 as encoder
from hpcddm.errors import UserError

PEER = "efficientnet-lite-pytorch==0.1.0"
PEER_SHA256 = "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41"


def stored_weights():
    return torch.load(pretrained.find_verified(encoder.ImageNetFeaturesSettings.pretrained[0]), weights_only=True)


@pytest.fixture(scope="module")
def network(fetched):
    """The network with its weights."""
    fetched("image", "efficientnet_lite0")
    return encoder.load_network()


@pytest.fixture(scope="module")
def peer(network, tmp_path_factory):
    """The same network as the weights' publisher wrote it."""
    folder = tmp_path_factory.mktemp("peer")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", PEER]
    done = subprocess.run([*command, "--dest", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode and "CI" not in os.environ:
        pytest.skip(f"no network: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    # It is about to be executed, so it must be the one that was looked at.
    assert pretrained.defect(pretrained.PretrainedFile("", PEER_SHA256, wheel.stat().st_size, "", ""), wheel) is None
    sys.path.insert(0, str(wheel))
    try:
        from efficientnet_lite_pytorch import EfficientNet
    finally:
        sys.path.remove(str(wheel))
    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(stored_weights())
    return model.eval()


@pytest.mark.parametrize("side", [64, 96, 128, 224])
@torch.no_grad()
def test_the_logits_are_those_of_the_publishers_network(network, peer, side):
    images = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(side))
    torch.testing.assert_close(network(images), peer(images), atol=1e-5, rtol=1e-5)


def test_every_stored_weight_has_its_place(network):
    stored, own = stored_weights(), network.state_dict()
    assert len(own) == len(stored) == 296
    for key, values in stored.items():
        assert torch.equal(own[key.replace("._", ".").removeprefix("_")], values), key


def test_features_tell_rough_texture_from_smooth_colour(network):
    """Each image's nearest neighbour is of its own kind."""
    generator = np.random.default_rng(0)
    rough = generator.integers(0, 256, (6, 64, 64, 3), dtype=np.uint8)
    smooth = np.broadcast_to(generator.integers(0, 256, (6, 1, 1, 3), dtype=np.uint8), rough.shape)
    encode = encoder.ImageNetFeatures(encoder.ImageNetFeaturesSettings(name="efficientnet_lite0")).encode
    features = encode(np.concatenate([rough, smooth]))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    similarity = features @ features.T - 2 * np.eye(12)
    assert ((similarity.argmax(axis=1) < 6) == (np.arange(12) < 6)).all()


def test_without_weights_a_job_says_which_command_fetches_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="efficientnet_lite0-579344248a93e230.pth: missing; .* run: hpcddm prefetch"):
        encoder.ImageNetFeatures(encoder.ImageNetFeaturesSettings(name="efficientnet_lite0"))


def test_probabilities_are_those_of_the_networks_logits(network):
    images = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    encode = encoder.ImageNetFeatures(encoder.ImageNetFeaturesSettings(name="efficientnet_lite0"))
    logits = network.fc(torch.from_numpy(encode.encode(images)))
    np.testing.assert_allclose(encode.probabilities(images), logits.softmax(1).numpy(), atol=1e-6)
