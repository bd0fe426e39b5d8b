"""Every space: the way in from real images and back, image by image, and what a run refuses."""

import gzip

import numpy as np
import pytest
import torch

from hpcddm import plugins
from hpcddm.errors import ConfigError
from hpcddm.pipeline.plan import plan
from hpcddm.spaces.base import Space, space_of
from hpcddm.spaces.settings import SpaceSettings
from tests.helpers import REPOSITORY, tiny
from tests.spaces.examples import network_data

SIDE = 28
NAMES = plugins.names(SpaceSettings.room)
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
    return space_of(network_data(channels, SIDE, name=name))


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


def test_an_experiment_that_names_the_default_is_the_same(tmp_path):
    plans = [plan(tiny(tmp_path, **changes)) for changes in ({}, {"data__space": {"name": "pixels"}})]
    assert [unit.fingerprint_settings for unit in plans[0]] == [unit.fingerprint_settings for unit in plans[1]]


def test_an_unknown_space_lists_the_valid_ones(tmp_path):
    with pytest.raises(ConfigError, match=f"data.space: unknown name 'pictures'; valid names: {', '.join(NAMES)}"):
        tiny(tmp_path, data__space={"name": "pictures"})


def test_a_patch_that_does_not_tile_x_names_the_space(tmp_path):
    with pytest.raises(ConfigError, match="experts.model: patch 3 does not divide the side 8 of x in the space pixels"):
        tiny(tmp_path, experts__model__patch=3)
