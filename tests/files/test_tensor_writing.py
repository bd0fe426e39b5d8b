"""Files of tensors that a group can share."""

import os
import stat

import pytest
import torch
from safetensors.torch import load_file

from hpcddm.files.tensors import save_tensors


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o077])
def test_the_umask_decides_who_may_read(tmp_path, mask):
    before = os.umask(mask)
    try:
        save_tensors({"a": torch.arange(3)}, tmp_path / "a.safetensors")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.safetensors").stat().st_mode) == 0o666 & ~mask
    assert load_file(tmp_path / "a.safetensors")["a"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
