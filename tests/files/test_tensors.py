"""Files of tensors that others wrote: refused by tensor before memory is taken, hashed as they are read, finite."""

import hashlib
import json
import os
import struct
import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from hpcddm.errors import UserError
from hpcddm.files import tensors
from hpcddm.files.tensor_file import HEADER_BYTES, TensorFile


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


ENTRIES = [
    (name, tensors.DTYPE_NAMES[values.dtype], list(values.shape), values.contiguous().numpy().tobytes())
    for name, values in network().state_dict().items()
]
FIRST, REST = "0.weight", ENTRIES[1:]


def content(entries=ENTRIES, pad=0, tail=b"", **changes):
    """A file of (name, type, shape, bytes); changes: of the first tensor's entry in the header."""
    header, body = {}, b""
    for name, dtype, shape, raw in entries:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    header[entries[0][0]] |= changes
    return framed(json.dumps(header).encode() + b" " * pad, body + tail)


def framed(header, body):
    return struct.pack("<Q", len(header)) + header + body


def with_value(value):
    name, dtype, shape, raw = ENTRIES[0]
    return content([(name, dtype, shape, struct.pack("<f", value) + raw[4:]), *REST])


PLACE = "tensor '0.weight' has no usable shape or place"
WRONG = {
    "F64": (content([(FIRST, "F64", [4, 3], bytes(96)), *REST]), r"'0.weight' is F64 \[4, 3\] instead of F32 \[4, 3\]"),
    "unknown type": (content(dtype="F32\x1b[2J"), r"tensor '0.weight' is of an unknown type, F32\\x1b\[2J"),
    "other name": (content([("x", *ENTRIES[0][1:]), *REST]), "lacks tensor '0.weight'"),
    "extra": (content([*ENTRIES, ("\x1b[2J", "F32", [], bytes(4))]), r"a tensor '\\x1b\[2J', which the network lacks"),
    "other shape": (content(shape=[3, 4]), r"tensor '0.weight' is F32 \[3, 4\] instead of F32 \[4, 3\]"),
    "size and shape": (content(shape=[4, 4]), r"tensor '0.weight' is F32 \[4, 4\] and has 48 bytes"),
    "huge shape": (content(shape=[1 << 60, 1 << 60]), "tensor '0.weight' is F32"),
    "below zero": (content(shape=[-4, -3]), PLACE),
    "fractions": (content(shape=[4.0, 3]), PLACE),
    "many dimensions": (content(shape=[1] * 9), PLACE),
    "overlap": (content([*ENTRIES[:2], ENTRIES[2]], data_offsets=[16, 64]), "begins at byte"),
    "out of range": (content(data_offsets=[1 << 40, (1 << 40) + 48]), "begins at byte"),
    "backwards": (content(data_offsets=[48, 0]), "tensor '0.weight' is F32 .* and has -48 bytes"),
    "further entry": (content(more=1), "tensor '0.weight' has other entries"),
    "twice": (framed(b'{"0.weight": 1, "0.weight": 2}', b""), "key '0.weight' appears twice"),
    "shorter": (content()[:-1], "bytes instead of"),
    "longer": (content(tail=b"\0"), "bytes instead of"),
    "empty": (b"", "has 0 bytes, too few for tensors"),
    "huge header": (struct.pack("<Q", 1 << 60) + b"{}", "has a header of 1,152,921,504,606,846,976 bytes"),
    "long header": (content(pad=HEADER_BYTES), "has a header of .* more than 16,777,216"),
    "header beyond the end": (struct.pack("<Q", 1 << 20) + b"{}", "fewer than its header"),
    "no JSON": (framed(b"\xff{}", b""), "has no usable header: is not UTF-8"),
    "deep": (framed(b"[" * 100_000 + b"]" * 100_000, b""), "has no usable header"),
    "a list": (framed(b"[]", b""), "not a mapping"),
    "metadata": (framed(b'{"__metadata__": {"a": 1}}', b""), "metadata are not texts"),
    "a pickle": (b"\x80\x04cos\nsystem\n(S'true'\ntR.", "header"),
    "NaN": (with_value(float("nan")), "tensor '0.weight' is not finite"),
    "infinity": (with_value(float("-inf")), "tensor '0.weight' is not finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_the_networks_is_refused_by_file_and_tensor(tmp_path, case):
    raw, words = WRONG[case]
    path = tmp_path / "expert-02" / "weights.safetensors"
    path.parent.mkdir()
    path.write_bytes(raw)
    model, started = network(), time.monotonic()
    with pytest.raises(UserError, match=words) as caught:
        tensors.load(model, path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and text.isprintable() and time.monotonic() - started < 5


def test_weights_are_those_of_the_file_bit_by_bit(tmp_path):
    path, model = tmp_path / "a.safetensors", network()
    values = {name: torch.rand_like(value) if value.is_floating_point() else value + 7 for name, value in
              model.state_dict().items()}  # fmt: skip
    save_file(values, path, {"a": "b"})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    tensors.load(model, path, digest)
    assert all(torch.equal(value, load_file(path)[name]) for name, value in model.state_dict().items())
    with TensorFile(path) as file:
        assert file.metadata == {"a": "b"} and file.read({}) == digest and file.copy(tmp_path / "copy") == digest
        assert all(torch.equal(tensors.read_whole(file, name), value) for name, value in values.items())
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    with pytest.raises(UserError, match="its bytes are not those of its manifest"):
        tensors.load(model, path, "0" * 64)


@pytest.mark.parametrize("dtype", tensors.DTYPE_NAMES)
def test_every_type_is_read_back(tmp_path, dtype):
    values = {"a": torch.arange(6).reshape(2, 3), "none": torch.zeros(0, 2), "one": torch.ones(())}
    values = {name: value.to(dtype) for name, value in values.items()}
    save_file(values, tmp_path / "a")
    with TensorFile(tmp_path / "a") as file:
        file.require(tensors.tensor_specs(values))
        read = tensors.read(file, values)
    assert all(torch.equal(read[name], value) for name, value in values.items())


def test_what_is_hashed_is_what_is_loaded(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content())
    other = [(name, dtype, shape, bytes(len(raw))) for name, dtype, shape, raw in ENTRIES]
    with tensors.open_weights(path) as file:
        (tmp_path / "b").write_bytes(content(other))
        (tmp_path / "b").replace(path)
        model = network()
        nn.init.ones_(model[0].weight)
        tensors.fill(model.state_dict(), file, hashlib.sha256(content()).hexdigest())
    assert torch.equal(model[0].weight, network()[0].weight)


def test_only_a_plain_file_is_read(tmp_path):
    (tmp_path / "other").write_bytes(content())
    (tmp_path / "a link").symlink_to("other")
    (tmp_path / "a folder").mkdir()
    os.mkfifo(tmp_path / "a pipe")
    for kind in ("a link", "a pipe", "a folder", "missing"):
        with pytest.raises(UserError, match=f"{tmp_path / kind}: is {kind}"):
            tensors.load(network(), tmp_path / kind)
