"""Checkpoints of torch that ask for more than they hold are refused in one line, without the memory."""

import resource
import zipfile

import pytest
import torch

from hpcddm.errors import UserError
from hpcddm.models.checkpoints import file_formats

COUNT, HUGE = b"K\x0a", b"J\xff\xff\xff\x7f"
"""Numbers of a pickle: 10, and 2^31 - 1."""


def packed_again(path, method=zipfile.ZIP_STORED, change=lambda name, content: content):
    """The checkpoint of ten values, its members changed."""
    torch.save({"a": torch.arange(10.0)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, change(name, content))


def in_the_old_format(path):
    torch.save({"a": torch.arange(10.0)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes().replace(COUNT, HUGE))


WRONG = {
    "expanded": lambda path: torch.save({"a": torch.zeros(1).expand(10**6, 10**6)}, path),
    "one memory for many": lambda path: torch.save(dict.fromkeys(map(str, range(100)), torch.zeros(10_000)), path),
    "packed": lambda path: packed_again(path, zipfile.ZIP_DEFLATED),
    "a size that is not there": lambda path: packed_again(
        path, change=lambda name, content: content.replace(COUNT, HUGE) if name.endswith("data.pkl") else content
    ),
    "values that are not there": lambda path: packed_again(
        path, change=lambda name, content: content[:4] if name.endswith("/data/0") else content
    ),
    "the old format": in_the_old_format,
}


@pytest.mark.parametrize("case", WRONG)
def test_a_checkpoint_gets_no_more_memory_than_its_file_has(tmp_path, case):
    path = tmp_path / "a.pt"
    WRONG[case](path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=f"^{path}: ") as caught:
        file_formats.read_checkpoint(path)
    assert str(caught.value).isprintable()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 19


@pytest.mark.parametrize("is_new", [True, False])
def test_tied_tensors_are_read(tmp_path, is_new):
    own = torch.arange(10_000.0)
    torch.save({"a": own, "b": own, "c": own[:10]}, tmp_path / "a.pt", _use_new_zipfile_serialization=is_new)
    read = file_formats.read_checkpoint(tmp_path / "a.pt").tensors
    assert torch.equal(read["a"], own) and torch.equal(read["b"], own) and torch.equal(read["c"], own[:10])
