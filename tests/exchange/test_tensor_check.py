"""Weights of other sites: what differs from the agreed table, or is not finite, is refused."""

import pytest
import torch
from safetensors.torch import save_file

from hpcddm.exchange import tensor_check
from hpcddm.exchange.tensor_check import check_weights
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.tensor_file import TensorSpec

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
    legal = [limits.smallest_normal / 2, -0.0, limits.max, limits.min]
    flat[:4] = torch.tensor(legal, dtype=torch.float64).to(flat.dtype)
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
