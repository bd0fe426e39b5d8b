"""Samples by which the speed of reading is measured, of existing tars and of images that would be written."""

import os
import shutil
import tarfile

import pytest

from hpcddm.commands.planning import read_speed
from hpcddm.errors import UserError
from tests.helpers import tiny, write_source
from tests.pictures import IMG2DATASET

ADOPTED = {"data__channels": 3, "data__num_classes": None, "data__condition": {"name": "none"}}
ADOPTED |= {"evaluators__classifier": None, "data__image_size": 16}


def sizes_read(monkeypatch, step):
    """Sizes of the reads of one run of a step."""
    sizes, pread = [], os.pread
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", lambda file, size, offset: sizes.append(size) or pread(file, size, offset))
        step()
    return sizes


def adopted(tmp_path, folder, **changes):
    source = {"name": "webdataset", "folder": str(folder), "heldout": {"shards": 1}}
    return tiny(tmp_path, data__source=source, **(ADOPTED | changes))


@pytest.mark.parametrize("count", [10, 60, 200])
def test_so_many_pictures_of_adopted_tars_are_read_where_they_lie(tmp_path, monkeypatch, count):
    experiment = adopted(tmp_path, IMG2DATASET)
    with tarfile.open(IMG2DATASET / "00000.tar") as file:
        pictures = {member.size for member in file if member.name.endswith(".jpg")}
    sizes = sizes_read(monkeypatch, read_speed.make_read_step(experiment, tmp_path, count, 4))
    assert len(sizes) == count and (count > 10 or set(sizes) <= pictures)
    assert not list(tmp_path.glob("*.tar"))


def test_other_images_are_written_first(tmp_path, monkeypatch):
    write_source(tmp_path / "images")
    sizes = sizes_read(monkeypatch, read_speed.make_read_step(tiny(tmp_path), tmp_path, 40, 2))
    assert len(sizes) == 40 and (tmp_path / "reading.tar").exists()


def test_broken_pictures_are_left_out_until_none_is_left(tmp_path):
    folder = shutil.copytree(IMG2DATASET, tmp_path / "collection")
    for path in folder.glob("*.tar"):
        with tarfile.open(path) as file:
            members = [member for member in file if member.name.endswith(".jpg")]
        content = bytearray(path.read_bytes())
        for member in members[path.name == "00000.tar" :]:
            content[member.offset_data : member.offset_data + 50] = bytes(50)
        path.write_bytes(content)
    read_speed.make_read_step(adopted(tmp_path, folder), tmp_path, 80, 1)()
    (folder / "00000.tar").unlink()
    with pytest.raises(UserError, match="none of the first samples can be read"):
        read_speed.make_read_step(adopted(tmp_path, folder), tmp_path, 20, 1)
