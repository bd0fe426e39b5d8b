"""Files that are torn, foreign or dangerous end in one line that names them."""

import argparse
import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from hpcddm.errors import UserError
from hpcddm.models.checkpoints import file_formats

TENSORS = {"a.weight": torch.arange(6.0).view(2, 3), "a.bias": torch.zeros(2)}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name, zipped", [("0050000.pt", True), ("0050000.pth", False)])
def test_what_the_public_train_py_leaves_is_read_with_its_arguments(tmp_path, name, zipped):
    arguments = argparse.Namespace(model="SiT-XL/2", path_type="Linear", lr=1e-4)
    zeros = {name: torch.zeros_like(values) for name, values in TENSORS.items()}
    optimiser = torch.optim.AdamW([torch.nn.Parameter(values) for values in TENSORS.values()]).state_dict()
    saved = {"model": zeros, "ema": TENSORS, "opt": optimiser, "args": arguments}
    torch.save(saved, tmp_path / name, _use_new_zipfile_serialization=zipped)
    found = file_formats.read_checkpoint(tmp_path / name)
    assert equal(found.tensors, TENSORS) and found.arguments == vars(arguments)


class Bomb:
    def __reduce__(self):
        return exec, ("import pathlib; pathlib.Path('exploded').write_text('')",)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("content", [{"a": Bomb()}, {"model": TENSORS, "args": argparse.Namespace(lr=Bomb())}])
@pytest.mark.parametrize("write", [torch.save, lambda values, path: path.write_bytes(pickle.dumps(values))])
def test_a_pickle_that_is_more_than_tensors_is_refused_unopened(tmp_path, monkeypatch, content, write):
    monkeypatch.chdir(tmp_path)
    write(content, tmp_path / "x.pt")
    with pytest.raises(UserError, match="x.pt: holds more than tensors.*could run code.*safetensors"):
        file_formats.read_checkpoint(tmp_path / "x.pt")
    assert not Path("exploded").exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("harm", [lambda raw: raw[:-5], lambda raw: raw[:40], lambda raw: b"", lambda raw: b"x" * 99])
def test_torn_and_foreign_files_are_named(tmp_path, suffix, harm):
    file = tmp_path / f"x{suffix}"
    save_file(TENSORS, file) if suffix == ".safetensors" else torch.save(TENSORS, file)
    file.write_bytes(harm(file.read_bytes()))
    with pytest.raises(UserError, match=f"x{suffix}: (torn|holds more than tensors, or is none)"):
        file_formats.read_checkpoint(file)


@pytest.mark.parametrize(
    "name, values, message",
    [
        ("x.pt", [1, 2], "x.pt: needs a state dict"),
        ("x.pt", {"a": 1}, "x.pt: needs a state dict"),
        ("x.pt", {}, "x.pt: holds no tensors"),
        ("x.pt", {"a": torch.tensor([1.0, float("nan")])}, "x.pt: tensor 'a' is not finite"),
        ("x.ckpt", TENSORS, "x.ckpt: weights are read from .safetensors, .pt, .pth"),
    ],
)
def test_what_holds_no_weights_is_refused(tmp_path, name, values, message):
    torch.save(values, tmp_path / name)
    with pytest.raises(UserError, match=message):
        file_formats.read_checkpoint(tmp_path / name)


def test_missing_files_and_empty_folders_are_named(tmp_path):
    with pytest.raises(UserError, match="nothing.pt: no such file or folder"):
        file_formats.read_checkpoint(tmp_path / "nothing.pt")
    with pytest.raises(UserError, match="neither weights.safetensors nor diffusion_pytorch_model.safetensors"):
        file_formats.read_checkpoint(tmp_path)


@pytest.mark.parametrize("below, named", [("", False), ("transformer", False), ("", True)])
def test_parts_of_weights_are_counted_with_how_to_join_them(tmp_path, below, named):
    (tmp_path / below).mkdir(exist_ok=True)
    for number in (1, 2):
        file = tmp_path / below / f"diffusion_pytorch_model-0000{number}-of-00002.safetensors"
        save_file(TENSORS, file)
    with pytest.raises(UserError, match="has 2 parts of weights, .*-00001-of-00002.safetensors the first; to join th"):
        file_formats.read_checkpoint(file if named else tmp_path)


@pytest.mark.parametrize("below", ["", "transformer"])
def test_a_diffusers_folder_comes_with_its_config(tmp_path, below):
    folder = tmp_path / below
    folder.mkdir(exist_ok=True)
    save_file(TENSORS, folder / file_formats.DIFFUSERS_WEIGHTS)
    (folder / "config.json").write_text(json.dumps({"patch_size": 2}))
    assert file_formats.read_checkpoint(tmp_path).config == {"patch_size": 2}
    (folder / "config.json").write_text("{")
    with pytest.raises(UserError, match="config.json: holds no usable JSON"):
        file_formats.read_checkpoint(tmp_path)


def test_our_own_weights_without_their_run_say_what_is_missing(tmp_path):
    save_file(TENSORS, tmp_path / "weights.safetensors")
    with pytest.raises(UserError, match="weights.safetensors: nothing says what denoiser this is; .*RUN/train/UNIT"):
        file_formats.layout("hpcddm").load(file_formats.read_checkpoint(tmp_path), None)
