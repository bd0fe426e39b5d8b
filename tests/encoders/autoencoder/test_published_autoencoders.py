"""Published layouts of AutoencoderKL with random weights: of Stable Diffusion, FLUX, SD3 and VA-VAE."""

import json
import math

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL

from hpcddm.data.latent_moments import LatentStatistics
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.diffusion.spaces.pixels import pixels_to_values, values_to_pixels
from hpcddm.stages.data import latents_job
from tests.diffusion.spaces.examples import network_data

SIDE = 32
NO_CONVOLUTIONS = {"use_quant_conv": False, "use_post_quant_conv": False}
MEANS, DEVIATIONS = [0.1 * number for number in range(32)], [2.0 + 0.1 * number for number in range(32)]
LAYOUTS = {
    "sd": (4, 8, {"scaling_factor": 0.18215}),
    "flux": (16, 8, {"scaling_factor": 0.3611, "shift_factor": 0.1159, **NO_CONVOLUTIONS}),
    "sd3": (16, 8, {"scaling_factor": 1.5305, "shift_factor": 0.0609, **NO_CONVOLUTIONS}),
    "e2e_vavae": (32, 16, {"latents_mean": MEANS, "latents_std": DEVIATIONS}),
}
IMAGES = torch.randint(256, (3, SIDE, SIDE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def saved(folder, name):
    """Save a small network in a published layout; return it and the settings that read it."""
    channels, factor, config = LAYOUTS[name]
    levels = int(math.log2(factor)) + 1
    torch.manual_seed(0)
    blocks = {"down_block_types": ["DownEncoderBlock2D"] * levels, "up_block_types": ["UpDecoderBlock2D"] * levels}
    if name == "e2e_vavae":
        # Networks made from LDM's may attend at the lowest resolution, too.
        blocks["down_block_types"][-1], blocks["up_block_types"][0] = "AttnDownEncoderBlock2D", "AttnUpDecoderBlock2D"
    sizes = {"block_out_channels": [8] * levels, "norm_num_groups": 4, "latent_channels": channels}
    peer = AutoencoderKL(**blocks, **sizes, **config).eval().requires_grad_(False)
    peer.save_pretrained(folder)
    own = {"name": "diffusers_kl", "channels": channels, "factor": factor, "weights": {"folder": str(folder)}}
    return peer, own


def given(config):
    """Shift and scale of a layout's config.json, and the latents of unit variance as its pipelines make them."""
    if "latents_mean" in config:
        mean, deviation = (torch.tensor(config[key]).view(-1, 1, 1) for key in ("latents_mean", "latents_std"))
        return MEANS, [1 / one for one in DEVIATIONS], lambda z: (z - mean) / deviation
    shift, scale = config.get("shift_factor") or 0.0, config["scaling_factor"]
    return shift, scale, lambda z: (z - shift) * scale


def space_of(folder, own, shift, scale):
    """The space of an autoencoder, with the file of shift and scale that the unit latents/scale writes."""
    channels = own["channels"]
    numbers = {key: latents_job._per_channel(one, None, channels) for key, one in (("shift", shift), ("scale", scale))}
    (folder / "latent_scale.json").write_text(json.dumps(numbers))
    data = network_data(3, SIDE, name="autoencoder", autoencoder=own, shift=shift, scale=scale)
    return create_space(data, lambda key, name: folder / name)


@pytest.mark.parametrize("name", LAYOUTS)
def test_shift_and_scale_are_those_of_the_published_pipelines_and_back(tmp_path, name):
    peer, own = saved(tmp_path, name)
    channels, factor, config = LAYOUTS[name]
    shift, scale, normalised = given(config)
    space = space_of(tmp_path, own, shift, scale)
    assert space.shape == (channels, SIDE // factor, SIDE // factor)
    # Without the two convolutions the folder has fewer tensors, and the loader knows by its config.json.
    assert ("quant_conv.weight" in peer.state_dict()) == (name not in ("flux", "sd3"))
    moments = space.moments(IMAGES)
    distribution = peer.encode(pixels_to_values(IMAGES)).latent_dist
    assert moments.shape == (3, 2, *space.shape)
    torch.testing.assert_close(moments[:, 0], distribution.mode(), atol=1e-5, rtol=0)
    torch.testing.assert_close(moments[:, 1].div(2).exp(), distribution.std, atol=1e-5, rtol=1e-5)
    x = space.to_model(IMAGES)
    torch.testing.assert_close(x, normalised(distribution.mode()), atol=1e-5, rtol=1e-5)
    expected = values_to_pixels(peer.decode(distribution.mode()).sample)
    assert np.abs(space.to_images(x).astype(int) - expected.astype(int)).max() <= 1


def test_measured_shift_and_scale_give_every_channel_zero_mean_and_unit_variance(tmp_path):
    peer, own = saved(tmp_path, "e2e_vavae")
    distribution = peer.encode(pixels_to_values(IMAGES)).latent_dist
    statistics = LatentStatistics.empty(32)
    statistics.add(torch.stack([distribution.mean, distribution.logvar], dim=1).half().numpy())
    space = space_of(tmp_path, own, statistics.mean.tolist(), (1 / statistics.deviation).tolist())
    drawn = distribution.mean + distribution.std * torch.randn(400, *distribution.mean.shape)
    x = space.from_batch(drawn.flatten(0, 1)).transpose(0, 1).flatten(1)
    assert x.mean(1).abs().max() < 0.1 and (x.std(1) - 1).abs().max() < 0.1
    torch.testing.assert_close(space.to_model(IMAGES), space.from_batch(distribution.mode()))
