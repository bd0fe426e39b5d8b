"""Autoencoders of diffusers: the latents and images that the package itself computes."""

from types import SimpleNamespace

import pytest
import torch

from hpcddm.config import variants
from hpcddm.encoders.autoencoder.base import Autoencoder
from hpcddm.errors import UserError

IMAGES = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
DATA = SimpleNamespace(channels=3, image_size=16)


def create(settings):
    return variants.create(Autoencoder, settings, DATA)


@pytest.mark.parametrize("name", ["diffusers_kl", "diffusers_tiny"])
def test_latents_have_the_moments_and_the_shape_of_the_settings(tiny, name):
    experiment = tiny(name)
    shape = experiment.shape(3, 16)
    moments = create(experiment).encode(IMAGES)
    assert shape == (4, 4, 4) and moments.shape == (3, experiment.moments, *shape)
    assert moments.dtype == torch.float32 and not moments.requires_grad


@torch.no_grad()
def test_mean_and_log_variance_and_images_are_those_of_autoencoder_kl(tiny):
    from diffusers import AutoencoderKL

    experiment = tiny("diffusers_kl")
    peer, own = AutoencoderKL.from_pretrained(experiment.weights.folder).eval(), create(experiment)
    distribution = peer.encode(IMAGES).latent_dist
    moments = own.encode(IMAGES)
    torch.testing.assert_close(moments[:, 0], distribution.mode(), atol=1e-6, rtol=0)
    torch.testing.assert_close(moments[:, 1].exp().sqrt(), distribution.std, atol=1e-6, rtol=0)
    torch.testing.assert_close(own.decode(moments[:, 0]), peer.decode(distribution.mode()).sample, atol=1e-6, rtol=0)


@torch.no_grad()
def test_latents_and_images_are_those_of_autoencoder_tiny(tiny):
    from diffusers import AutoencoderTiny

    experiment = tiny("diffusers_tiny")
    peer, own = AutoencoderTiny.from_pretrained(experiment.weights.folder).eval(), create(experiment)
    latents = peer.encode(IMAGES).latents
    torch.testing.assert_close(own.encode(IMAGES)[:, 0], latents, atol=1e-6, rtol=0)
    torch.testing.assert_close(own.decode(latents), peer.decode(latents).sample, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "channels, size, said",
    [(1, 16, "images of 3 channels and not 1"), (3, 18, "factor 4 does not divide image_size 18")],
)
def test_images_that_it_cannot_encode_are_refused_by_the_settings(tiny, channels, size, said):
    with pytest.raises(ValueError, match=said):
        tiny("diffusers_kl").shape(channels, size)


@pytest.mark.parametrize("key, value", [("factor", 8), ("channels", 16)])
def test_settings_of_another_network_are_refused(tiny, key, value):
    with pytest.raises(UserError, match=f"{key} is {value} and that of config.json is 4"):
        create(tiny("diffusers_kl", **{key: value}))


def test_weights_of_the_other_class_are_refused(tiny):
    folder = tiny("diffusers_tiny").weights.folder
    with pytest.raises(UserError, match="config.json is that of AutoencoderTiny and not AutoencoderKL"):
        create(tiny("diffusers_kl", weights={"folder": folder}))
