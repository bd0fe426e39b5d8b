"""Tars where they lie: which of them there are, and what is said of those that are not."""

import io
import shutil
import tarfile

import pytest

from hpcddm.data.pictures import PictureError
from hpcddm.errors import UserError
from hpcddm.launch.submission import _check_readable
from tests.data.sources.opening import source, split_of
from tests.pictures import IMG2DATASET

TARS = {"folder": str(IMG2DATASET), "heldout": {"shards": 1}}


@pytest.mark.parametrize("pattern", ["**.tar", "/abs/*.tar", ""])
def test_what_is_no_pattern_is_named(pattern):
    with pytest.raises(UserError, match=r"data\.source: .* is no pattern of paths in the folder"):
        source("webdataset", **TARS, tars=pattern).content()


def test_a_broken_picture_at_the_beginning_does_not_keep_a_run_from_starting(tmp_path):
    shutil.copytree(IMG2DATASET, tmp_path / "tars")
    content = bytearray((tmp_path / "tars" / "00000.tar").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(content)) as file:
        offset = file.next().offset_data
    content[offset : offset + 100] = bytes(100)
    (tmp_path / "tars" / "00000.tar").write_bytes(content)
    records = split_of("webdataset", folder=str(tmp_path / "tars"), heldout={"shards": 1})
    with pytest.raises(PictureError, match=r"00000\.tar: "):
        records[0]
    _check_readable(records)
