"""Loading weights by public packages: without a network, without pickles, and every tensor of them."""

import json
import pickle
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from hpcddm.config import variants
from hpcddm.encoders.autoencoder.base import Autoencoder
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.encoders.text.base import TextEncoder
from hpcddm.errors import UserError
from tests.encoders.networks import SAVED, with_packages
from tests.helpers import python

LOADED = """
import sys, socket
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        raise SystemExit(f"{event} {arguments}")
from hpcddm.config import variants
sys.addaudithook(refuse)
from hpcddm.encoders.text.base import TextEncoder
own = variants.settings_class("encoders/text", sys.argv[1])
settings = own.model_validate({"name": sys.argv[1], "weights": {"folder": sys.argv[2]}, "width": 32})
print("shape", list(variants.create(TextEncoder, settings).encode("a red cat").shape))
"""


@pytest.fixture
def copied(tiny, tmp_path):
    """A copy of a tiny DINOv2 to be damaged, and its settings."""
    folder = shutil.copytree(tiny("dinov2").weights.folder, tmp_path / "network")
    return folder, tiny("dinov2", weights={"folder": str(folder)})


def test_a_process_that_loads_an_encoder_asks_no_network(tiny):
    done = python(LOADED, "t5_text", tiny("t5_text").weights.folder, HOME="/nowhere")
    assert (done.returncode, done.stdout) == (0, "shape [4, 32]\n"), done.stderr


def test_pickles_of_tensors_alone_are_read(copied):
    folder, settings = copied
    before = variants.create(ImageEncoder, settings).network.state_dict()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    after = variants.create(ImageEncoder, settings).network.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


class Executed:
    """What would leave a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


IMAGES = SimpleNamespace(channels=3, image_size=16)
NETWORKS = with_packages(SAVED)
ROOMS = {"image": ImageEncoder, "text": TextEncoder, "autoencoder": Autoencoder}


def create(settings):
    room = settings.package.rpartition("/")[2]
    return variants.create(ROOMS[room], settings, *([IMAGES] if room == "autoencoder" else []))


@pytest.mark.parametrize("name", NETWORKS)
def test_pickles_of_more_are_refused_by_name_and_never_executed(tiny, tmp_path, name):
    settings, mark = tiny(name), tmp_path / "executed"
    pickles = [file for file in settings.layout.weights if not file.endswith(".safetensors") and "-of-" not in file]
    assert pickles
    for number, pattern in enumerate(pickles):
        folder = shutil.copytree(settings.weights.folder, tmp_path / str(number))
        for weights in [*folder.glob("*.safetensors"), *folder.glob("*.pth")]:
            weights.unlink()
        file = pattern.replace("*", "own")
        torch.save({"a": Executed(mark)}, folder / file)
        words = f"weights of {name}(: {file} holds more than tensors, and code| cannot be loaded)"
        with pytest.raises(UserError, match=words):
            create(tiny(name, weights={"folder": str(folder)}))
    assert not mark.exists()
    pickle.loads(pickle.dumps(Executed(mark))).close()
    assert mark.exists()


@pytest.mark.parametrize("name", NETWORKS)
def test_other_files_of_the_folder_are_neither_executed_nor_loaded(tiny, tmp_path, name):
    settings, mark = tiny(name), tmp_path / "executed"
    folder = shutil.copytree(settings.weights.folder, tmp_path / "network")
    others = {"aaa.pth", "zzz.pth", "zzz.bin", "zzz.ckpt", "model.pth", "pytorch_model.bin", "zzz.pt", "pickle.pkl"}
    # Of Inception's layout any .pth is the weights, and two are one too many.
    others -= {one for one in others if name == "inception_2015" and one.endswith(".pth")}
    for file in others:
        torch.save({"a": Executed(mark)}, folder / file)
    (folder / "modeling_own.py").write_text(f"open({str(mark)!r}, 'w')")
    for config in folder.glob("*config.json"):
        named = {kind: f"modeling_own.{kind}" for kind in ("AutoConfig", "AutoModel", "AutoTokenizer")}
        config.write_text(json.dumps(json.loads(config.read_text()) | {"auto_map": named}))
    several = (settings, tiny(name, weights={"folder": str(folder)}))
    before, after = (create(one).network.state_dict() for one in several)
    assert all(torch.equal(before[key], after[key]) for key in before | after)
    assert not mark.exists()


@pytest.mark.foreign
def test_a_tokenizer_of_open_clip_executes_no_code_of_the_folder(tiny, tmp_path):
    folder, mark = shutil.copytree(tiny("open_clip_text").weights.folder, tmp_path / "network"), tmp_path / "executed"
    file = folder / "open_clip_config.json"
    described = json.loads(file.read_text())
    described["model_cfg"]["text_cfg"] |= {"hf_tokenizer_name": "own", "tokenizer_kwargs": {"trust_remote_code": True}}
    file.write_text(json.dumps(described))
    (folder / "own.py").write_text(f"open({str(mark)!r}, 'w')\nclass Own: pass")
    named = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    (folder / "config.json").write_text(json.dumps({"model_type": "own"}))
    with pytest.raises(UserError, match="network: no tokenizer of open_clip_text"):
        create(tiny("open_clip_text", weights={"folder": str(folder)}))
    assert not mark.exists()


def test_weights_without_one_tensor_and_torn_ones_are_refused_by_name(copied):
    folder, settings = copied
    content = (folder / "model.safetensors").read_bytes()
    stored = load_file(folder / "model.safetensors")
    del stored["embeddings.cls_token"]
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"cannot be loaded \(1 tensors are missing, such as embeddings.cls_token\)"):
        create(settings)
    (folder / "model.safetensors").write_bytes(content[:1000])
    with pytest.raises(UserError, match="network: weights of dinov2 cannot be loaded"):
        create(settings)


@pytest.mark.parametrize(
    "base, name, package, install",
    [
        (ImageEncoder, "dinov2", "transformers", "'transformers>=5'"),
        (TextEncoder, "t5_text", "transformers", "'transformers>=5'"),
        (ImageEncoder, "open_clip_image", "open_clip", "'open_clip_torch>=3.3' torchvision"),
        (ImageEncoder, "timm_model", "timm", "'timm>=1.0.17' torchvision"),
    ],
)
def test_without_the_package_the_error_says_what_to_install(monkeypatch, tmp_path, base, name, package, install):
    monkeypatch.setitem(sys.modules, package, None)
    room = "text" if base is TextEncoder else "image"
    own = variants.settings_class(f"encoders/{room}", name)
    settings = own.model_validate({"name": name, "weights": {"folder": str(tmp_path)}, "width": 8})
    with pytest.raises(UserError, match=rf"encoder {name}: needs the package {package} .* pip install {install}$"):
        variants.create(base, settings)
