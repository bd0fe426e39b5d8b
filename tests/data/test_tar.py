import io
import tarfile

import numpy as np
import pytest
import webdataset
from PIL import Image

from hpcddm.data import tar
from hpcddm.data.sources.base import Record
from hpcddm.errors import UserError
from tests.helpers import SIDE


def pictures(count=7, size=(SIDE, SIDE), mode="L"):
    generator = np.random.default_rng(0)
    bands = () if mode == "L" else (len(mode),)
    return [Image.fromarray(generator.integers(0, 256, (*size, *bands)).astype(np.uint8), mode) for _ in range(count)]


def records(count=7):
    return [Record(f"train-{number:07d}", image, number % 3) for number, image in enumerate(pictures(count))]


@pytest.fixture
def written(tmp_path):
    """A tar of seven images."""
    assert tar.write_tar(tmp_path / "images.tar", records(), SIDE, 1) == 7
    return tmp_path / "images.tar"


def test_the_webdataset_library_reads_what_was_written(written):
    found = list(webdataset.WebDataset(str(written), shardshuffle=False).decode("pil"))
    for record, sample in zip(records(), found, strict=True):
        assert (sample["__key__"], sample["cls"]) == (record.key, record.label)
        assert np.array_equal(np.asarray(sample["png"].convert("L")), np.asarray(record.image))


def test_the_same_records_give_the_same_bytes(written, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1e9)
    monkeypatch.setenv("USER", "somebody")
    tar.write_tar(tmp_path / "again.tar", records(), SIDE, 1)
    assert (tmp_path / "again.tar").read_bytes() == written.read_bytes()


def test_the_index_points_at_the_bytes_that_tarfile_finds(written):
    index, keys = tar.index_tar(written, shard=5)
    content = written.read_bytes()
    with tarfile.open(written) as file:
        entries = [entry for entry in file if entry.name.endswith(".png")]
        assert keys == [entry.name.removesuffix(".png") for entry in entries]
        for row, entry in zip(index, entries, strict=True):
            assert content[row["offset"] : row["offset"] + row["size"]] == file.extractfile(entry).read()
    assert index["label"].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert set(index["shard"]) == {5} and set(index["cluster"]) == {-1}


def test_a_tar_that_is_torn_anywhere_gives_no_whole_index(written):
    whole = written.read_bytes()
    for end in range(0, len(whole) - 10240, 500):
        written.write_bytes(whole[:end])
        try:
            index, _ = tar.index_tar(written, 0)
        except UserError as error:
            assert str(written) in str(error)
        else:
            assert len(index) < 7


@pytest.mark.parametrize(
    "entries, message",
    [
        ({"a.png": b"x"}, "image a has no class"),
        ({"a.png": b"x", "a.cls": b"cat"}, "a torn or foreign tar"),
        ({"a.png": b"x", "a.cls": b""}, "a torn or foreign tar"),
    ],
    ids=str,
)
def test_a_foreign_tar_is_named(tmp_path, entries, message):
    with tarfile.open(tmp_path / "foreign.tar", "w") as file:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    with pytest.raises(UserError, match=f"foreign.tar: {message}"):
        tar.index_tar(tmp_path / "foreign.tar", 0)


def test_a_file_that_is_no_tar_is_named(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"no tar" * 1000)
    with pytest.raises(UserError, match="x.tar: a torn or foreign tar"):
        tar.index_tar(tmp_path / "x.tar", 0)


@pytest.mark.parametrize("mode, channels", [("L", 1), ("L", 3), ("RGB", 1), ("RGB", 3), ("RGBA", 3)])
@pytest.mark.parametrize("size", [(8, 8), (20, 12), (5, 9)])
def test_every_picture_becomes_a_square_of_the_wanted_bands(tmp_path, mode, channels, size):
    (image,) = pictures(1, size, mode)
    tar.write_tar(tmp_path / "x.tar", [Record("k", image, 0)], SIDE, channels)
    index, _ = tar.index_tar(tmp_path / "x.tar", 0)
    content = (tmp_path / "x.tar").read_bytes()[index["offset"][0] :][: index["size"][0]]
    pixels = np.asarray(Image.open(io.BytesIO(content)))
    assert pixels.shape == ((SIDE, SIDE) if channels == 1 else (SIDE, SIDE, 3))


def test_the_middle_of_a_wide_picture_is_kept(tmp_path):
    pixels = np.zeros((8, 24), dtype=np.uint8)
    pixels[:, 8:16] = 200
    tar.write_tar(tmp_path / "x.tar", [Record("k", Image.fromarray(pixels), 0)], 8, 1)
    (sample,) = webdataset.WebDataset(str(tmp_path / "x.tar"), shardshuffle=False).decode("pil")
    assert set(np.asarray(sample["png"].convert("L")).reshape(-1)) == {200}
