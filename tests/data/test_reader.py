import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import Column
from hpcddm.data.images import CatalogImages
from hpcddm.data.reader import CatalogReader
from hpcddm.data.tars import tar_writing
from hpcddm.data.tars.record import Record
from hpcddm.errors import UserError
from tests.catalogs import CENTRE_CROP, catalog_of
from tests.data.refusals import assert_refused
from tests.helpers import SIDE


@pytest.fixture
def pixels():
    """Eight images."""
    return np.random.default_rng(0).integers(0, 256, (8, SIDE, SIDE, 1)).astype(np.uint8)


@pytest.fixture(params=[1, 2], ids=["one range", "two ranges"])
def catalog(request, tmp_path, pixels):
    """Two tars of five and three of the images, whose class is the number modulo 4."""
    for name, numbers in (("a.tar", range(5)), ("b.tar", range(5, 8))):
        images = {number: Image.fromarray(pixels[number, ..., 0]) for number in numbers}
        records = [
            Record(f"train-{number}", image, number % 4, f"picture {number}") for number, image in images.items()
        ]
        tar_writing.write_tar(tmp_path / name, records, SIDE, 1, CENTRE_CROP)
    return catalog_of(tmp_path, [tmp_path / "a.tar", tmp_path / "b.tar"], request.param)


def test_samples_come_from_their_tars_by_number_in_the_order_asked_for(catalog, pixels):
    reader, numbers = CatalogReader(catalog), [7, 0, 5, 0, 4]
    assert len(reader) == 8 and np.array_equal(reader.images(numbers), pixels[numbers])
    assert reader.labels(numbers).tolist() == [3, 0, 1, 0, 0] and reader.labels(numbers).dtype == torch.int64
    assert reader.captions(numbers) == [f"picture {number}" for number in numbers]
    assert np.array_equal(reader.images(range(2, 7)), pixels[2:7])


def test_samples_in_any_order_are_read_from_front_to_back(catalog, monkeypatch):
    offsets, pread, seen = catalog.column("offset").gather(range(8)).tolist(), os.pread, []
    monkeypatch.setattr(os, "pread", lambda file, size, offset: seen.append(offset) or pread(file, size, offset))
    numbers = [7, 0, 5, 0, 4]
    files = CatalogImages(catalog).files(numbers)
    assert seen == [offsets[number] for number in sorted(numbers)]
    assert files[1] == files[3] and len({*files}) == 4 and files[0] == CatalogImages(catalog).files([7])[0]


def test_clusters_are_those_of_the_column(catalog, tmp_path):
    write_columns(tmp_path / "clusters.h5", {"cluster": np.array([0, 1, 2, 3, 0, 1, 2, 65535], dtype=np.uint16)})
    reader = CatalogReader(catalog, Column("cluster", {tmp_path / "clusters.h5": 8}))
    assert reader.clusters([7, 1]).tolist() == [65535, 1] and reader.clusters([7]).dtype == torch.int64
    with pytest.raises(ValueError, match="does not read the samples' clusters"):
        CatalogReader(catalog).clusters([0])


def place_of(catalog, number):
    """Where the bytes of a sample begin, and how many they are."""
    return [int(catalog.column(name).gather([number])[0]) for name in ("offset", "size")]


@pytest.mark.parametrize("is_padded", [False, True], ids=["short", "as long as ever"])
def test_a_tar_torn_in_the_middle_is_named(catalog, is_padded):
    (offset, _), path = place_of(catalog, 6), catalog.tar(1)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[: offset + 20].ljust(len(whole), b"\0") if is_padded else whole[: offset + 20])
    message = f"b.tar: torn at byte {offset}" if is_padded else f"b.tar has {offset + 20} bytes instead of {len(whole)}"
    reader = CatalogReader(catalog)
    reader.images(range(5))
    assert_refused(message, reader.images, [6])


def test_a_tar_that_is_cut_while_it_is_read_is_named(catalog):
    (offset, size), path, reader = place_of(catalog, 6), catalog.tar(1)[0], CatalogReader(catalog)
    reader.images([5])
    path.write_bytes(path.read_bytes()[: offset + 20])
    assert_refused(rf"b.tar: torn at byte {offset} \(20 of {size} bytes\)", reader.images, [6])


def test_a_missing_tar_is_named_when_it_is_read(catalog):
    catalog.tar(1)[0].unlink()
    reader = CatalogReader(catalog)
    reader.images(range(5))
    assert_refused(r"b.tar: cannot be read \(No such file or directory\); submit again", reader.images, [0, 6])
    # A pipe in its place is not waited for.
    os.mkfifo(catalog.tar(1)[0])
    assert_refused(r"b\.tar: cannot be read \(is a pipe instead of a file\)", CatalogReader(catalog).images, [6])


def test_no_more_tars_are_open_than_a_process_may_open(tmp_path, pixels, monkeypatch):
    monkeypatch.setattr("hpcddm.data.images.MAX_OPEN_IMAGE_FILES", 3)
    tars = [tmp_path / f"{number}.tar" for number in range(8)]
    for number, path in enumerate(tars):
        tar_writing.write_tar(
            path, [Record(str(number), Image.fromarray(pixels[number, ..., 0]))], SIDE, 1, CENTRE_CROP
        )
    reader = CatalogReader(catalog_of(tmp_path, tars))
    for numbers in ([0, 1, 2, 3], range(8), [7, 0, 7], range(8)):
        assert np.array_equal(reader.images(numbers), pixels[list(numbers)])
        opened = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists()]
        assert sum(name.startswith(str(tmp_path)) and name.endswith(".tar") for name in opened) <= 3


@pytest.mark.parametrize("pattern", [b"\xff\x00\xff\x00", b"\x03"])
def test_overwritten_bytes_are_named_or_decoded_and_never_a_traceback(catalog, pattern):
    path, (offset, size), named = catalog.tar(0)[0], place_of(catalog, 2), 0
    whole, reader = path.read_bytes(), CatalogReader(catalog)
    for place in range(offset, offset + size):
        path.write_bytes(whole[:place] + pattern + whole[place + len(pattern) :])
        try:
            reader.images([2])
        except UserError as error:
            named += "a.tar: torn at byte" in str(error)
    assert named > size // 4
