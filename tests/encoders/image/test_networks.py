"""Features of networks by public packages: those that the package itself computes, by its own preparation of images."""

import json
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from hpcddm.config import variants
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.encoders.image.network_encoder import Preparation
from hpcddm.encoders.image.timm_model import resized_side
from hpcddm.errors import UserError
from hpcddm.evaluation.evaluators import EncoderEvaluator
from tests.encoders.networks import dinov2, dinov2_with_registers

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), dtype=np.uint8)
SMOOTH = np.stack([np.asarray(Image.fromarray(image).resize((90, 90), Image.Resampling.BICUBIC)) for image in IMAGES])


def settings_of(values):
    return variants.settings_class("encoders/image", values["name"]).model_validate(values)


def near(own, peer):
    """Require agreement in full precision."""
    np.testing.assert_allclose(own, peer, rtol=1e-4, atol=1e-5 * peer.abs().max())


def features(settings, images=SMOOTH):
    return variants.create(ImageEncoder, settings).encode(images)


def processed(images=SMOOTH, **changes):
    """The images as transformers prepares them for DINOv2, by Pillow."""
    from transformers import BitImageProcessorPil

    from hpcddm.encoders.image.dinov2 import DEVIATION, MEAN

    common = dict.fromkeys(("do_resize", "do_center_crop", "do_normalize"), True)
    common |= {"image_mean": MEAN, "image_std": DEVIATION}
    sizes = {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "resample": 3}
    processor = BitImageProcessorPil(**(common | sizes | changes))
    return processor(images=list(images), return_tensors="pt")["pixel_values"]


@torch.no_grad()
def test_class_token_and_mean_of_patches_are_those_of_transformers(tiny):
    from transformers import Dinov2Model

    experiment = tiny("dinov2")
    tokens = Dinov2Model.from_pretrained(experiment.weights.folder).eval()(processed()).last_hidden_state
    near(features(experiment), tokens[:, 0])
    near(features(tiny("dinov2", pooling="mean")), tokens[:, 1:].mean(1))
    assert (tokens[:, 0] - tokens[:, 1:].mean(1)).abs().max() > 0.1


@torch.no_grad()
def test_for_published_distances_the_whole_image_is_resized_and_positions_are_those_of_the_authors(tmp_path):
    """A network for 518 x 518 pixels; where positions need not be resampled, transformers and the authors agree."""
    from transformers import Dinov2Model

    values = dinov2(tmp_path / "network", image_size=518)
    whole = {"size": {"height": 224, "width": 224}, "do_center_crop": False}
    planes = processed(**whole)
    peer = Dinov2Model.from_pretrained(tmp_path / "network").eval()
    stored = peer.embeddings.position_embeddings.data
    square = stored[0, 1:].reshape(37, 37, 24).permute(2, 0, 1)[None]
    # As in dinov2/models/vision_transformer.py, with interpolate_offset 0.1.
    resampled = F.interpolate(square, scale_factor=(16.1 / 37, 16.1 / 37), mode="bicubic")[0].permute(1, 2, 0)
    by_size = features(settings_of(values | {"size": 224}))
    other = peer(planes).last_hidden_state[:, 0]
    peer.embeddings.position_embeddings.data = torch.cat([stored[0, :1], resampled.reshape(256, 24)])[None]
    near(by_size, peer(planes).last_hidden_state[:, 0])
    assert not np.allclose(by_size, other, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_registers_are_no_patches(tmp_path):
    from transformers import Dinov2WithRegistersModel

    encoder = variants.create(ImageEncoder, settings_of(dinov2_with_registers(tmp_path / "network")))
    planes = torch.randn(2, 3, 224, 224)
    tokens = Dinov2WithRegistersModel.from_pretrained(tmp_path / "network").eval()(planes).last_hidden_state
    torch.testing.assert_close(encoder.encode_prepared(planes), tokens[:, 4:].mean(1), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("side", [28, 90, 256, 400])
def test_the_preparation_is_that_of_pillow(side):
    images = np.stack([np.asarray(Image.fromarray(image).resize((side, side))) for image in IMAGES])
    own = Preparation(256, 224, (0.5, 0.4, 0.3), (0.2, 0.3, 0.25))(torch.from_numpy(images))
    peer = processed(images, image_mean=(0.5, 0.4, 0.3), image_std=(0.2, 0.3, 0.25))
    torch.testing.assert_close(own, peer, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize(
    ("side", "share", "resized", "first"),
    [(224, 0.95, 235, 6), (288, 0.95, 303, 8), (256, 0.95, 269, 6), (224, 0.9, 248, 12), (384, 1.0, 384, 0)],
)
def test_the_middle_is_that_of_timm(side, share, resized, first):
    # Computed by timm 1.0.31's create_transform with torchvision 0.28.0.
    assert resized_side(side, share) == resized
    places = torch.stack(torch.meshgrid(torch.arange(resized), torch.arange(resized), indexing="ij"), -1)
    rows = torch.cat([places // 256 * 16 + 1, places[..., :1] % 256], -1)[None].to(torch.uint8)
    for axis, images in enumerate((rows, rows.transpose(1, 2))):
        planes = (Preparation(resized, side, (0,) * 3, (1,) * 3)(images) * 255).round().int()
        assert planes[0, 2].select(1 - axis, 0).tolist() == [place % 256 for place in range(first, first + side)]


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
    near(encoder.encode(SMOOTH), model.encode_image(planes))
    texts = ["a cat", "two dogs on a mat", ""]
    near(encoder.text_features(texts), model.encode_text(open_clip.tokenize(texts)))
    assert encoder.text_features([]).shape == (0, 20)
    expected = torch.cosine_similarity(model.encode_image(planes), model.encode_text(open_clip.tokenize(texts)))
    measured = EncoderEvaluator(experiment.evaluator_label(), experiment).measure(SMOOTH, np.zeros(0), texts)
    np.testing.assert_allclose(measured["text"], expected, atol=1e-4)
    with pytest.raises(UserError, match="the package of open_clip_image prepares images by .* and not as in clip-b-1"):
        EncoderEvaluator("clip-b-1", experiment)


@pytest.mark.foreign
def test_a_checkpoint_alone_needs_the_name_of_its_architecture(tiny, tmp_path):
    import open_clip
    from safetensors.torch import save_file

    model = open_clip.create_model("RN50", pretrained=None)
    save_file(model.state_dict(), tmp_path / "somebodys.safetensors")
    weights = {"folder": str(tmp_path)}
    experiment = tiny("open_clip_image", weights=weights, architecture="RN50", width=1024)
    assert features(experiment, SMOOTH[:1]).shape == (1, 1024)
    assert experiment.evaluator_label() == "clip-rn50-224-bicubic-aa"
    with pytest.raises(UserError, match="open_clip describes no RN51"):
        tiny("open_clip_image", weights=weights, architecture="RN51").evaluator_label()


@pytest.mark.foreign
@pytest.mark.parametrize(
    "name, size",
    [("ViT-B-32", 224), ("ViT-L-14-336", 336), ("RN50x4", 288), ("RN101", 224), ("ViT-B-16-quickgelu", 224)],
)
def test_labels_of_open_clip_name_the_network_that_its_json_describes(tmp_path, name, size):
    import open_clip

    said, file = f"clip-{name.lower().removesuffix('-336')}-{size}-bicubic-aa", tmp_path / "open_clip_config.json"
    described = {"model_cfg": open_clip.get_model_config(name), "preprocess_cfg": {}}
    file.write_text(json.dumps(described))
    (tmp_path / "open_clip_model.safetensors").write_bytes(b"")
    values = {"name": "open_clip_image", "weights": {"folder": str(tmp_path)}}
    own = values | {"width": described["model_cfg"]["embed_dim"]}
    assert settings_of(own).evaluator_label() == said
    file.unlink()
    assert settings_of(own | {"architecture": name}).evaluator_label() == said


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
    torch.testing.assert_close(encoder.preparation(torch.from_numpy(SMOOTH)), planes, atol=1e-5, rtol=1e-6)
    near(encoder.encode(SMOOTH), model(planes))
    assert experiment.evaluator_label() == "timm-test-vit-168-crop-160-bicubic-aa"


def test_labels_of_dinov2_say_what_is_done(tmp_path):
    described = {"model_type": "dinov2", "hidden_size": 1024, "patch_size": 14}
    (tmp_path / "config.json").write_text(json.dumps(described))
    (tmp_path / "model.safetensors").write_bytes(b"")
    values = {"name": "dinov2", "weights": {"folder": str(tmp_path)}}
    mean = values | {"pooling": "mean", "precision": "bf16", "size": 518}
    assert settings_of(values).evaluator_label() == "dinov2-l14-256-crop-224-bicubic-aa"
    assert settings_of(mean).evaluator_label() == "dinov2-l14-mean-bf16-518-bicubic-aa"
    stated = {"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}, "resample": 2}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stated))
    assert settings_of(values).evaluator_label() == "dinov2-l14-224-crop-224-bilinear-aa"
    assert settings_of(values | {"size": 224}).evaluator_label() == "dinov2-l14-224-bicubic-aa"
    with pytest.raises(ValueError, match="multiple of 14"):
        settings_of(values | {"size": 225})
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="weights of dinov2: model.safetensors .* is missing"):
        settings_of(values).evaluator_label()
