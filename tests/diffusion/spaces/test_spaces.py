"""Every space without an autoencoder: the way in from real images and back, image by image, and what a run refuses."""

import gzip

import numpy as np
import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.spaces.base import Space, create_space
from hpcddm.diffusion.spaces.latents import cosines, deviations
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.errors import ConfigError
from hpcddm.pipeline.unit_graph import plan_units
from tests.diffusion.spaces.examples import network_data
from tests.helpers import REPOSITORY, tiny

SIDE = 28
NAMES = [name for name, own in variants.settings_classes(SpaceSettings).items() if not own.reads_latents]
CLAMP = {"evaluate__conversion": {"name": "snr_matched", "x0_clamp": 1.0}}
PATCH_ONE = {"experts__model__patch": 1, "router__model__patch": 1}
each_space = pytest.mark.parametrize("name", NAMES)


def clothes(count: int = 200) -> torch.Tensor:
    """Real images, uint8 (N, 28, 28, 1): the first ones of the quickstart."""
    content = gzip.decompress((REPOSITORY / "experiments/quickstart/train-images-idx3-ubyte.gz").read_bytes())
    values = np.frombuffer(content, np.uint8, count * SIDE**2, offset=16)
    return torch.from_numpy(values.reshape(count, SIDE, SIDE, 1).copy())


def in_colour(images: torch.Tensor) -> torch.Tensor:
    """Three bands that differ: the image, its negative, and its mirror image."""
    return torch.cat([images, 255 - images, images.flip(2)], dim=3)


def space(name: str, channels: int) -> Space[SpaceSettings]:
    return create_space(network_data(channels, SIDE, name=name))


@each_space
@pytest.mark.parametrize("channels", [1, 3])
def test_real_images_come_back_to_the_bit(name, channels):
    images, own = clothes() if channels == 1 else in_colour(clothes()), space(name, channels)
    x = own.to_model(images)
    assert x.shape == (len(images), *own.shape) and x.dtype == torch.float32
    assert np.array_equal(own.to_images(x), images.numpy())
    assert torch.equal(own.finish(x), x)


@each_space
def test_an_image_depends_on_no_other_image_of_its_batch(name):
    images, own = clothes(), space(name, 1)
    x = own.to_model(images)
    for rows in (slice(0, 1), slice(3, 5), slice(17, 150)):
        assert torch.equal(own.to_model(images[rows]), x[rows])
        assert np.array_equal(own.to_images(x[rows]), own.to_images(x)[rows])


@each_space
def test_whatever_is_drawn_becomes_an_image(name):
    own = space(name, 3)
    drawn = own.finish(100 * torch.randn(4, *own.shape, generator=torch.Generator().manual_seed(0)))
    images = own.to_images(drawn)
    assert images.shape == (4, SIDE, SIDE, 3) and images.dtype == np.uint8
    assert (images == 0).any() and (images == 255).any()
    assert own.settings.bound is None or drawn.abs().max() <= own.settings.bound


def test_pixels_are_scaled_to_unit_range_and_kept_there():
    own, images = space("pixels", 1), torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1)
    x = own.to_model(images)
    assert x.shape == (1, 1, 16, 16) and (x.min(), x.max()) == (-1, 1)
    assert own.to_images(torch.tensor([-3.0, 3.0]).view(1, 2, 1, 1)).tolist() == [[[[0, 255]]]]
    assert own.finish(torch.tensor([-3.0, 0.5, 3.0]).view(3, 1, 1, 1)).flatten().tolist() == [-1, 0.5, 1]


@pytest.mark.parametrize("statistics", [{"deviation": 0.7}, {"deviation": 0.7, "patch": 4}])
def test_latents_of_the_clothes_have_about_unit_variance_and_no_correlation_within_a_patch(statistics):
    own = create_space(network_data(1, SIDE, name="latents", **statistics))
    coefficients = own.to_model(clothes(1000)).movedim(1, 0).flatten(1)
    assert 0.6 < coefficients.std(1).min() and coefficients.std(1).max() < 1.6
    between = torch.corrcoef(coefficients) - torch.eye(len(coefficients))
    assert between.abs().max() < 0.4


@pytest.mark.parametrize("patch", [1, 2, 3, 7])
def test_latents_are_a_scaled_rotation_of_every_patch(patch):
    basis = cosines(patch)
    torch.testing.assert_close(basis @ basis.T, torch.eye(patch, dtype=torch.float64))
    own = create_space(network_data(3, 42, name="latents", patch=patch))
    assert own.shape == (3 * patch**2, 42 // patch, 42 // patch)
    values = torch.randn(5, 3, 42, 42, generator=torch.Generator().manual_seed(0)).mul(40).add(128).clamp(0, 255)
    images = values.to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    scales = deviations(own.settings)
    corner = pixels_to_values(images)[4, 2, -patch:, -patch:].double()
    expected = (basis @ corner @ basis.T / (scales[:, None] * scales)).flatten()
    torch.testing.assert_close(own.to_model(images)[4, -(patch**2) :, -1, -1].double(), expected, atol=1e-5, rtol=1e-5)
    assert np.array_equal(own.to_images(own.to_model(images)), images.numpy())


@pytest.mark.parametrize(
    "space, changes, message",
    [
        ({"patch": 3}, {}, "data.space: patch 3 does not divide image_size 8"),
        ({"patch": 4}, {}, "experts.model: patch 4 does not divide the side 2 of x in the space latents"),
        ({}, CLAMP, "evaluate.conversion: x0_clamp 1: x has no bound in the space latents; remove it"),
        ({"name": "pixels"}, {"experts__model__patch": 3},
         "experts.model: patch 3 does not divide the side 8 of x in the space pixels"),
        ({"name": "pictures"}, {},
         "data.space: unknown name 'pictures'; valid names: autoencoder, latents, pixels"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_a_space_is_refused(tmp_path, space, changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny(tmp_path, data__space={"name": "latents"} | space, **changes)


def test_a_space_makes_stale_what_sees_it_and_nothing_else(tmp_path):
    before, after = (
        {unit.key: unit.fingerprint_settings for unit in plan_units(tiny(tmp_path, data__space=space, **PATCH_ONE))}
        for space in ({"name": "pixels"}, {"name": "latents"})
    )
    changed = {key.split("/")[0] for key in before if before[key] != after[key]}
    assert changed == {"train", "router", "draw", "report"}
