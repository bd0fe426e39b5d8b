"""Inception against golden outputs of torch-fidelity, and its resize against the package where it is installed."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hpcddm.config import variants
from hpcddm.encoders.image import inception_2015
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.errors import UserError
from tests.encoders.inception_weights import FILE, GOLDEN, random_state
from tests.encoders.perceptual.images import SETS


@pytest.fixture(scope="module")
def encoder(tiny):
    """The encoder with random weights."""
    return variants.create(ImageEncoder, tiny("inception_2015"))


@pytest.fixture(scope="module")
def state():
    """The published state dict of the random weights."""
    return random_state()


@pytest.mark.parametrize("name", SETS)
def test_features_and_logits_are_those_of_torch_fidelity(encoder, name):
    golden = np.load(GOLDEN / "inception.npz")
    features, logits = encoder.encode_with_logits(SETS[name][1:4])
    for own, peer in ((features[:, ::32], golden[f"{name} features"]), (logits[:, ::16], golden[f"{name} logits"])):
        assert own.shape == peer.shape and np.ptp(peer, axis=0).max() > 0.1
        np.testing.assert_allclose(own, peer, rtol=1e-4, atol=1e-5 * np.abs(peer).max())


def test_the_resize_takes_the_pixel_at_its_left_corner_and_averages_nothing():
    ramp = torch.arange(8.0).repeat(8, 1)[None, None]
    assert inception_2015.resize_like_tensorflow(ramp, 4)[0, 0, 0].tolist() == [0, 2, 4, 6]
    assert inception_2015.resize_like_tensorflow(ramp, 16)[0, 0, :, :4].tolist() == [[0, 0.5, 1, 1.5]] * 16
    assert inception_2015.resize_like_tensorflow(ramp, 16)[0, 0, 0, -1] == 7


def saved(state, folder, name=FILE):
    folder.mkdir(exist_ok=True)
    (save_file if name.endswith("safetensors") else torch.save)(state, folder / name)
    values = {"name": "inception_2015", "weights": {"folder": str(folder)}}
    return inception_2015.InceptionSettings.model_validate(values)


def refused(settings, said):
    with pytest.raises(UserError, match=f"net: weights of inception_2015{said}") as caught:
        variants.create(ImageEncoder, settings)
    assert "\n" not in str(caught.value)


def test_a_file_of_safetensors_gives_the_same_network(encoder, state, tmp_path):
    other = variants.create(ImageEncoder, saved(state, tmp_path / "net", "converted.safetensors"))
    np.testing.assert_array_equal(other.encode(SETS["32"][:1]), encoder.encode(SETS["32"][:1]))


def test_a_network_that_is_not_that_of_fid_is_refused(state, tmp_path):
    """Torchvision's has 1000 classes, and with its second head further tensors."""
    other, layer = "this is not the Inception of FID: ", "Mixed_5b.branch1x1.conv.weight"
    head = {"fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}
    fewer = {key: values for key, values in state.items() if key != "Mixed_7c.branch_pool.bn.running_var"}
    negative = {"Conv2d_1a_3x3.bn.running_var": torch.full((32,), -1.0)}
    for wrong, reason in (
        (state | head, f"{other}1000 classes and not 1008"),
        (state | {"AuxLogits.fc.bias": torch.zeros(1000)}, f"{other}it has AuxLogits.fc.bias"),
        (fewer, f"{other}it lacks Mixed_7c.branch_pool.bn.running_var"),
        (state | {layer: torch.zeros(32, 192, 1, 1)}, rf"{other}{layer} has shape \[32, 192, 1, 1\]"),
        ({"state": state}, f"{FILE} is not a state dict"),
        (state | {"fc.weight": torch.full((1008, 2048), torch.nan)}, "fc.weight holds values that are not numbers"),
        (state | negative, "Conv2d_1a_3x3.weight holds values that are not numbers"),
    ):
        refused(saved(wrong, tmp_path / "net"), rf" cannot be loaded \({reason}")


@pytest.mark.foreign
@pytest.mark.parametrize("side", [1, 2, 17, 64, 299, 300, 512])
def test_the_resize_is_that_of_torch_fidelity_bit_for_bit(side):
    from torch_fidelity.interpolate_compat_tensorflow import interpolate_bilinear_2d_like_tensorflow1x

    planes = torch.randint(0, 256, (2, 3, side, side), generator=torch.Generator().manual_seed(side)).float()
    peer = interpolate_bilinear_2d_like_tensorflow1x(planes, size=(299, 299), align_corners=False)
    assert torch.equal(inception_2015.resize_like_tensorflow(planes, 299), peer)
