"""Weights of other sites: what differs from the agreed table, or is not finite, is refused."""

import json
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hpcddm.exchange import tensor_check
from hpcddm.exchange.tensor_check import check_weights
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.tensor_file import TensorSpec
from tests.helpers import python

TABLE = {
    "a.weight": TensorSpec("F32", (3, 4)),
    "b.weight": TensorSpec("F16", (5,)),
    "c.weight": TensorSpec("BF16", (2, 2)),
    "d.scale": TensorSpec("F32", ()),
}


def tensors():
    generator = torch.Generator().manual_seed(0)
    types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    return {name: torch.randn(spec.shape, generator=generator).to(types[spec.dtype]) for name, spec in TABLE.items()}


def check(path, table=TABLE):
    sizes = []
    check_weights(path, table, sizes.append)
    return sum(sizes)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.safetensors"


def test_the_agreed_tensors_are_taken(path):
    save_file(tensors(), path)
    assert check(path) == sum(spec.size for spec in TABLE.values())


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_is_refused_in_every_type(path, name, value):
    values = tensors()
    values[name].reshape(-1)[-1] = value
    save_file(values, path)
    with pytest.raises(Unreadable, match=f"tensor '{name}' has values that are infinite or not numbers"):
        check(path)


@pytest.mark.parametrize("name", ["a.weight", "b.weight", "c.weight"])
def test_denormals_zeros_and_the_largest_values_are_legal(path, name):
    values = tensors()
    flat = values[name].reshape(-1)
    limits = torch.finfo(flat.dtype)
    flat[:4] = torch.tensor([limits.smallest_normal / 2, -0.0, limits.max, limits.min], dtype=torch.float64).to(
        flat.dtype
    )
    save_file(values, path)
    assert check(path) > 0


def test_a_tensor_larger_than_a_block_is_read_in_blocks(path, monkeypatch):
    monkeypatch.setattr(tensor_check, "BLOCK_BYTES", 4096)
    values = torch.randn(3000, dtype=torch.float32)
    table = {"x": TensorSpec("F32", (3000,))}
    save_file({"x": values}, path)
    sizes = []
    check_weights(path, table, sizes.append)
    assert sizes == [4096, 4096, 12_000 - 8192]
    values[2999] = float("nan")
    save_file({"x": values}, path)
    with pytest.raises(Unreadable, match="'x'"):
        check(path, table)


def write_raw(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def changed(**changes):
    """The agreed tensors with some added, removed (None) or replaced."""
    values = tensors() | changes
    return {name: value for name, value in values.items() if value is not None}


X = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HOSTILE = {
    "a tensor more": lambda path: save_file(changed(e=torch.zeros(1)), path),
    "a tensor less": lambda path: save_file(changed(**{"a.weight": None}), path),
    "another shape": lambda path: save_file(changed(**{"a.weight": torch.zeros(4, 3)}), path),
    "another dimension": lambda path: save_file(changed(**{"a.weight": torch.zeros(12)}), path),
    "another type": lambda path: save_file(changed(**{"b.weight": torch.zeros(5, dtype=torch.bfloat16)}), path),
    "another name": lambda path: save_file(changed(**{"a.weight": None, "A.weight": torch.zeros(3, 4)}), path),
    "metadata": lambda path: save_file(tensors(), path, metadata={"user": "ada"}),
    "a header of 2^60 bytes": lambda path: write_raw(path, {"x": X}, bytes(4), length=1 << 60),
    "a header longer than the file": lambda path: write_raw(path, {"x": X}, bytes(4), length=5000),
    "overlapping tensors": lambda path: write_raw(path, {"x": X, "y": X}, bytes(8)),
    "a gap": lambda path: write_raw(path, {"x": X, "y": X | {"data_offsets": [8, 12]}}, bytes(12)),
    "bytes behind the end": lambda path: write_raw(path, {"x": X}, bytes(8)),
    "an offset below zero": lambda path: write_raw(path, {"x": X | {"data_offsets": [-4, 0]}}, bytes(4)),
    "a shape whose size overflows": lambda path: write_raw(path, {"x": X | {"shape": [1 << 40, 1 << 40]}}, bytes(4)),
    "a name twice": lambda path: write_raw(
        path,
        b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},' * 1
        + b'"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        bytes(4),
    ),
    "a header that is not JSON": lambda path: write_raw(path, b"{", bytes(4)),
    "a bomb of lists": lambda path: write_raw(path, b"[" * 100_000, bytes(4)),
    "no byte": lambda path: path.write_bytes(b""),
    "seven bytes": lambda path: path.write_bytes(bytes(7)),
    "a pickle": lambda path: torch.save(tensors(), path),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_any_other_file_is_refused_in_one_printable_line(path, case):
    HOSTILE[case](path)
    with pytest.raises(Unreadable) as raised:
        check(path)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_mutations_of_a_file_are_refused_or_have_the_agreed_tensors(path, count):
    save_file(tensors(), path)
    content, generator = path.read_bytes(), np.random.default_rng(0)
    accepted = 0
    for _ in range(count):
        mutated = bytearray(content)
        for _ in range(generator.integers(1, 4)):
            mutated[generator.integers(0, len(mutated))] = generator.integers(0, 256)
        path.write_bytes(mutated)
        try:
            check(path)
        except Unreadable:
            continue
        accepted += 1
        # Other values in the same tensors: what was signed is for the signature to say.
        assert len(mutated) == len(content)
    assert 0 < accepted < count


def test_torch_is_not_imported():
    done = python(
        "import sys, hpcddm.exchange.tensor_check, hpcddm.exchange.signed_folder; print('torch' in sys.modules)"
    )
    assert done.stdout == "False\n", done.stderr
