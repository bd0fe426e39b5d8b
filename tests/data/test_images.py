"""Images by sample number, and the reads that find them."""

import os

import numpy as np
import pytest
from PIL import Image

from hpcddm.data import tar_writing
from hpcddm.data.images import TarImages
from hpcddm.data.sources.base import Record
from hpcddm.errors import UserError
from tests.catalogs import catalog_of
from tests.helpers import SIDE


def test_samples_in_any_order_are_read_from_front_to_back(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (8, SIDE, SIDE)).astype(np.uint8)
    for name, numbers in (("a.tar", range(5)), ("b.tar", range(5, 8))):
        records = [Record(f"{number}", Image.fromarray(pixels[number])) for number in numbers]
        tar_writing.write_tar(tmp_path / name, records, SIDE, 1)
    catalog = catalog_of(tmp_path, [tmp_path / "a.tar", tmp_path / "b.tar"])
    offsets = catalog.column("offset").gather(range(8)).tolist()
    images, pread, seen = TarImages(catalog), os.pread, []
    monkeypatch.setattr(os, "pread", lambda file, size, offset: seen.append(offset) or pread(file, size, offset))
    numbers = [7, 0, 5, 0, 4]
    assert np.array_equal(images.images(numbers)[..., 0], pixels[numbers])
    assert seen == [offsets[number] for number in sorted(numbers)]
    files = images.files(numbers)
    assert files[1] == files[3] and len({*files}) == 4 and files[0] == images.files([7])[0]


def test_a_pipe_in_place_of_a_tar_is_named_and_not_waited_for(tmp_path):
    tar_writing.write_tar(tmp_path / "a.tar", [Record("0", Image.new("L", (SIDE, SIDE)))], SIDE, 1)
    catalog = catalog_of(tmp_path, [tmp_path / "a.tar"])
    (tmp_path / "a.tar").unlink()
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(UserError, match=r"a\.tar: cannot be read \(is a pipe instead of a file\)"):
        TarImages(catalog).images([0])
