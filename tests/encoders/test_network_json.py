"""JSON files beside foreign weights: the forms that are followed, and an error for every value of another kind."""

import copy
import json

import pytest

from hpcddm.config.conditions import TextEncoderSettings
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.config.spaces import AutoencoderSettings
from hpcddm.config.weights import list_files
from hpcddm.encoders.image.dinov2 import DinoV2Settings, stated_preparation
from hpcddm.errors import UserError

DINO = {"model_type": "dinov2", "hidden_size": 384, "patch_size": 14}
PREPARED = {"size": 256, "crop_size": 224, "resample": 3, "do_resize": True, "do_center_crop": True}
PREPARED |= {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
TOWER = {"image_size": [224, 224], "layers": [2, 2], "width": 64, "patch_size": 16, "timm_model_name": "vit"}
CLIP = {"embed_dim": 512, "quick_gelu": True, "vision_cfg": TOWER, "text_cfg": {"width": 512}}
OPEN_CLIP = {"open_clip_config.json": {"model_cfg": CLIP, "preprocess_cfg": {"interpolation": "bicubic"}}}
TIMM = {"architecture": "vit", "num_features": 64}
STATED = {"input_size": [3, 224, 224], "crop_pct": 0.9, "interpolation": "bicubic"}
CLIP_TEXT = {"model_type": "clip", "text_config": {"hidden_size": 512}}
KL = {"_class_name": "AutoencoderKL", "block_out_channels": [1, 2, 3, 4], "latent_channels": 4}
CASES = {
    "dinov2": (ImageEncoderSettings, {"width": 384}, {"config.json": DINO, "preprocessor_config.json": PREPARED}),
    "open_clip_image": (ImageEncoderSettings, {}, OPEN_CLIP),
    "timm_model": (ImageEncoderSettings, {"width": 64}, {"config.json": TIMM | {"pretrained_cfg": STATED}}),
    "open_clip_text": (TextEncoderSettings, {}, OPEN_CLIP),
    "clip_text": (TextEncoderSettings, {"width": 512}, {"config.json": CLIP_TEXT}),
    "t5_text": (TextEncoderSettings, {"width": 512}, {"config.json": {"model_type": "t5", "d_model": 512}}),
    "diffusers_kl": (AutoencoderSettings, {}, {"config.json": KL}),
}
ODD = [None, True, 0, -1, 1.5, "x", [], ["x"], [None], {}, {"height": 448, "width": 224}, {"x": 1}]
FILES = ("model.safetensors", "open_clip_model.safetensors", "diffusion_pytorch_model.safetensors", "tokenizer.json")


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        (tmp_path / name).touch()
    return tmp_path


def places(values, path=()):
    """Keys of all values, the inner ones and the whole."""
    yield path
    for key, inner in values.items() if isinstance(values, dict) else ():
        yield from places(inner, (*path, key))


def changed(values, path, value):
    """A copy of a file's content with another value at a place."""
    if not path:
        return value
    whole = inner = copy.deepcopy(values)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return whole


@pytest.mark.parametrize("name", CASES)
def test_a_value_of_another_kind_is_an_error_that_names_its_file(folder, name):
    kind, keys, files = CASES[name]
    settings = kind.model_validate({"name": name, **keys, "weights": {"folder": str(folder)}})
    refused = 0

    def look():
        list_files(settings)
        if hasattr(settings, "evaluator_label"):
            settings.evaluator_label()

    for file, values in files.items():
        (folder / file).write_text(json.dumps(values))
    look()
    for file, values in files.items():
        for path in places(values):
            for odd in ODD:
                (folder / file).write_text(json.dumps(changed(values, path, odd)))
                try:
                    look()
                except UserError as error:
                    refused += 1
                    assert file in str(error) or str(error).endswith(file), error
        (folder / file).write_text(json.dumps(values))
    assert refused > 20


@pytest.mark.parametrize(
    "stated, sides",
    [
        ({"size": 256, "crop_size": 224}, (256, 224)),
        ({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}, (256, 224)),
        ({"size": {"height": 448, "width": 448}, "do_center_crop": False}, (448, 448)),
        ({"size": None, "crop_size": 196}, (256, 196)),
        ({"do_resize": False, "size": 300, "crop_size": 224}, (224, 224)),
    ],
)
def test_a_preparation_is_followed_in_every_form_that_transformers_writes(folder, stated, sides):
    (folder / "preprocessor_config.json").write_text(json.dumps(stated))
    found = stated_preparation(DinoV2Settings(name="dinov2", weights={"folder": str(folder)}))
    assert found[:2] == sides


@pytest.mark.parametrize("key", ["size", "crop_size"])
@pytest.mark.parametrize("value", [[224, 224], {"height": 224, "width": 448}, {"longest_edge": 224}, "224", 0])
def test_a_form_that_cannot_be_followed_names_file_and_key(folder, key, value):
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps({key: value}))
    with pytest.raises(UserError, match=f"{file}: {key} is "):
        stated_preparation(DinoV2Settings(name="dinov2", weights={"folder": str(folder)}))
