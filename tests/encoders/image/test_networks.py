"""Features of networks by public packages: those that the package itself computes, by its own preparation of images."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from hpcddm.config import variants
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.encoders.image.network_encoder import Preparation
from tests.encoders.networks import dinov2_with_registers

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), dtype=np.uint8)
SMOOTH = np.stack([np.asarray(Image.fromarray(image).resize((90, 90), Image.Resampling.BICUBIC)) for image in IMAGES])


def features(settings, images=SMOOTH):
    return variants.create(ImageEncoder, settings).encode(images)


def processed(images=SMOOTH, **changes):
    """The images as transformers prepares them for DINOv2, by Pillow."""
    from transformers import BitImageProcessorPil

    from hpcddm.encoders.image.dinov2 import DEVIATION, MEAN

    common = {
        "do_resize": True,
        "do_center_crop": True,
        "do_normalize": True,
        "image_mean": MEAN,
        "image_std": DEVIATION,
    }
    sizes = {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "resample": 3}
    processor = BitImageProcessorPil(**(common | sizes | changes))
    return processor(images=list(images), return_tensors="pt")["pixel_values"]


@torch.no_grad()
def test_class_token_and_mean_of_patches_are_those_of_transformers(tiny):
    from transformers import Dinov2Model

    experiment = tiny("dinov2")
    tokens = Dinov2Model.from_pretrained(experiment.weights.folder).eval()(processed()).last_hidden_state
    np.testing.assert_allclose(features(experiment), tokens[:, 0], atol=1e-3)
    np.testing.assert_allclose(features(tiny("dinov2", pooling="mean")), tokens[:, 1:].mean(1), atol=1e-3)
    assert (tokens[:, 0] - tokens[:, 1:].mean(1)).abs().max() > 0.1


@torch.no_grad()
def test_registers_are_no_patches(tmp_path):
    from transformers import Dinov2WithRegistersModel

    values = dinov2_with_registers(tmp_path / "network")
    settings = variants.settings_class("encoders/image", "dinov2").model_validate(values)
    encoder = variants.create(ImageEncoder, settings)
    planes = torch.randn(2, 3, 224, 224)
    tokens = Dinov2WithRegistersModel.from_pretrained(tmp_path / "network").eval()(planes).last_hidden_state
    torch.testing.assert_close(encoder.encode_prepared(planes), tokens[:, 4:].mean(1), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("side", [28, 90, 256, 400])
def test_the_preparation_is_that_of_pillow_but_for_a_grey_value_here_and_there(side):
    images = np.stack([np.asarray(Image.fromarray(image).resize((side, side))) for image in IMAGES])
    own = Preparation(256, 224, (0.5, 0.4, 0.3), (0.2, 0.3, 0.25))(torch.from_numpy(images))
    peer = processed(images, image_mean=(0.5, 0.4, 0.3), image_std=(0.2, 0.3, 0.25))
    greys = (own - peer).abs() * torch.tensor([0.2, 0.3, 0.25]).view(1, 3, 1, 1) * 255
    assert own.shape == peer.shape and greys.max() < 1.01 and greys.mean() < 1e-3


def test_a_preparation_beside_the_weights_replaces_that_of_the_authors(tiny, tmp_path):
    folder = shutil.copytree(tiny("dinov2").weights.folder, tmp_path / "network")
    stated = {"size": {"shortest_edge": 70}, "crop_size": {"height": 56, "width": 56}, "resample": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(stated | {"image_mean": [0.5] * 3}))
    encoder = variants.create(ImageEncoder, tiny("dinov2", weights={"folder": str(folder)}))
    prepared = encoder.preparation
    assert (prepared.resized, prepared.side, prepared.interpolation) == (70, 56, "bilinear")
    assert (prepared.mean, prepared.deviation) == ([0.5] * 3, (0.229, 0.224, 0.225))
    assert encoder.encode(IMAGES).shape == (3, 24)


@pytest.mark.foreign
@torch.no_grad()
def test_features_of_open_clip_are_those_of_its_own_call(tiny):
    import open_clip

    experiment = tiny("open_clip_image")
    model, _, prepare = open_clip.create_model_and_transforms(f"local-dir:{experiment.weights.folder}")
    planes = torch.stack([prepare(Image.fromarray(image)) for image in SMOOTH])
    encoder = variants.create(ImageEncoder, experiment)
    torch.testing.assert_close(encoder.encode_prepared(planes), model.eval().encode_image(planes), atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(encoder.encode(SMOOTH), model.encode_image(planes), atol=2e-2)


@pytest.mark.foreign
def test_a_checkpoint_alone_needs_the_name_of_its_architecture(tiny, tmp_path):
    import open_clip
    from safetensors.torch import save_file

    model = open_clip.create_model("RN50", pretrained=None)
    save_file(model.state_dict(), tmp_path / "somebodys.safetensors")
    weights = {"folder": str(tmp_path)}
    experiment = tiny("open_clip_image", weights=weights, architecture="RN50", width=1024)
    assert features(experiment, SMOOTH[:1]).shape == (1, 1024)


@pytest.mark.foreign
@torch.no_grad()
def test_features_of_timm_are_those_of_its_own_call(tiny):
    import timm

    experiment = tiny("timm_model")
    model = timm.create_model(f"local-dir:{experiment.weights.folder}", pretrained=True, num_classes=0).eval()
    prepare = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    planes = torch.stack([prepare(Image.fromarray(image)) for image in SMOOTH])
    encoder = variants.create(ImageEncoder, experiment)
    torch.testing.assert_close(encoder.encode_prepared(planes), model(planes), atol=1e-6, rtol=1e-6)
    assert encoder.preparation(torch.from_numpy(SMOOTH)).shape == planes.shape
    assert (encoder.preparation(torch.from_numpy(SMOOTH)) - planes).abs().max() < 3 / 127
