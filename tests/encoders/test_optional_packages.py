"""Loading weights by public packages: without a network, without pickles, and every tensor of them."""

import pickle
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from hpcddm.config import variants
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.encoders.text.base import TextEncoder
from hpcddm.errors import UserError
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


def as_pickle(folder, value):
    (folder / "model.safetensors").unlink()
    torch.save(value, folder / "pytorch_model.bin")


def test_a_process_that_loads_an_encoder_asks_no_network(tiny):
    done = python(LOADED, "t5_text", tiny("t5_text").weights.folder, HOME="/nowhere")
    assert (done.returncode, done.stdout) == (0, "shape [4, 32]\n"), done.stderr


def test_pickles_of_tensors_alone_are_read(copied):
    folder, settings = copied
    before = variants.create(ImageEncoder, settings).network.state_dict()
    as_pickle(folder, load_file(folder / "model.safetensors"))
    after = variants.create(ImageEncoder, settings).network.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


class Executed:
    """What would leave a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def test_pickles_of_more_are_refused_by_name_and_never_executed(copied, tmp_path):
    folder, settings = copied
    as_pickle(folder, {"a": Executed(tmp_path / "executed")})
    with pytest.raises(
        UserError, match="network: weights of dinov2: pytorch_model.bin holds more than tensors, and code"
    ):
        variants.create(ImageEncoder, settings)
    assert not (tmp_path / "executed").exists()
    pickle.loads(pickle.dumps(Executed(tmp_path / "executed"))).close()
    assert (tmp_path / "executed").exists()


def test_weights_without_one_tensor_are_refused(copied):
    folder, settings = copied
    stored = load_file(folder / "model.safetensors")
    del stored["embeddings.cls_token"]
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"cannot be loaded \(1 tensors are missing, such as embeddings.cls_token\)"):
        variants.create(ImageEncoder, settings)


def test_a_torn_file_is_named(copied):
    folder, settings = copied
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:1000])
    with pytest.raises(UserError, match="network: weights of dinov2 cannot be loaded"):
        variants.create(ImageEncoder, settings)


@pytest.mark.parametrize(
    "base, name, package, install",
    [
        (ImageEncoder, "dinov2", "transformers", "transformers"),
        (TextEncoder, "t5_text", "transformers", "transformers"),
        (ImageEncoder, "open_clip_image", "open_clip", "open_clip_torch torchvision"),
        (ImageEncoder, "timm_model", "timm", "timm torchvision"),
    ],
)
def test_without_the_package_the_error_says_what_to_install(monkeypatch, tmp_path, base, name, package, install):
    monkeypatch.setitem(sys.modules, package, None)
    room = "text" if base is TextEncoder else "image"
    own = variants.settings_class(f"encoders/{room}", name)
    settings = own.model_validate({"name": name, "weights": {"folder": str(tmp_path)}, "width": 8})
    with pytest.raises(UserError, match=rf"encoder {name}: needs the package {package} .* pip install {install}$"):
        variants.create(base, settings)


@pytest.mark.foreign
def test_torchvision_is_imported_beside_a_torch_for_cpus():
    from hpcddm.encoders import optional_packages

    assert optional_packages.import_torchvision().transforms.Resize(3) is not None


@pytest.mark.parametrize("base, name", [(ImageEncoder, "dinov2"), (TextEncoder, "clip_text")])
def test_half_precision_needs_a_gpu(monkeypatch, tiny, base, name):
    monkeypatch.setattr("hpcddm.encoders.gpu.visible_gpus", lambda: 0)
    said = f"encoder {name} needs a GPU with precision bf16, and this unit has none; .*, or precision: fp32$"
    with pytest.raises(UserError, match=said):
        variants.create(base, tiny(name, precision="bf16"))
    monkeypatch.setattr("hpcddm.encoders.gpu.visible_gpus", lambda: 1)
    assert next(variants.create(base, tiny(name, precision="bf16")).network.parameters()).dtype == torch.bfloat16
