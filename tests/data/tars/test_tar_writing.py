import io
import tarfile

import numpy as np
import pytest
import webdataset
from PIL import Image
from webdataset.tariterators import base_plus_ext

from hpcddm.data.image_decoding import decode
from hpcddm.data.tars import tar_index, tar_writing
from hpcddm.data.tars.record import Record
from hpcddm.data.tars.tar_layout import IMAGES
from hpcddm.errors import UserError
from tests.catalogs import CENTRE_CROP
from tests.data.oddities import write_tar
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
    assert tar_writing.write_tar(tmp_path / "images.tar", records(), SIDE, 1, CENTRE_CROP) == 7
    return tmp_path / "images.tar"


def test_the_webdataset_library_reads_what_was_written(written):
    found = list(webdataset.WebDataset(str(written), shardshuffle=False).decode("pil"))
    for record, sample in zip(records(), found, strict=True):
        assert (sample["__key__"], sample["cls"]) == (record.key, record.label)
        assert np.array_equal(np.asarray(sample["png"].convert("L")), np.asarray(record.image))


def test_the_same_records_give_the_same_bytes(written, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1e9)
    monkeypatch.setenv("USER", "somebody")
    tar_writing.write_tar(tmp_path / "again.tar", records(), SIDE, 1, CENTRE_CROP)
    assert (tmp_path / "again.tar").read_bytes() == written.read_bytes()
    with tarfile.open(written) as file:
        owners = {(member.uname, member.gname, member.uid, member.gid, member.mtime) for member in file}
    assert owners == {("", "", 0, 0, 0)}


def test_the_index_points_at_the_bytes_that_tarfile_finds(written):
    index = tar_index.index_tar(written)
    content = written.read_bytes()
    with tarfile.open(written) as file:
        entries = [entry for entry in file if entry.name.endswith(".png")]
        assert index.keys == [entry.name.removesuffix(".png") for entry in entries]
        for offset, size, entry in zip(index.offsets.tolist(), index.sizes.tolist(), entries, strict=True):
            assert content[offset : offset + size] == file.extractfile(entry).read()
    assert index.labels.tolist() == [0, 1, 2, 0, 1, 2, 0] and index.captions is None


def test_captions_of_any_language_come_back_and_classes_need_not_be_there(tmp_path):
    captions = ["a red dress", "a", "Ärmel, 鞋 👟", "two\nlines"]
    images = pictures(len(captions))
    samples = [Record(str(number), images[number], caption=caption) for number, caption in enumerate(captions)]
    tar_writing.write_tar(tmp_path / "x.tar", samples, SIDE, 1, CENTRE_CROP)
    index = tar_index.index_tar(tmp_path / "x.tar")
    assert (index.captions, index.labels) == (captions, None)
    found = webdataset.WebDataset(str(tmp_path / "x.tar"), shardshuffle=False).decode()
    assert [sample["txt"] for sample in found] == captions


def test_a_tar_that_is_torn_anywhere_gives_no_whole_index(written):
    whole = written.read_bytes()
    for end in range(0, len(whole) - 10240, 500):
        written.write_bytes(whole[:end])
        try:
            index = tar_index.index_tar(written)
        except UserError as error:
            assert str(written) in str(error)
        else:
            assert len(index.keys) < 7


NAMES = ["a.png", "v1.2/a.png", "v1.2/b.c/d.e.png", "./x.y/00.JPG", "x/y/z.jpeg", "x.png", "deep.er/x.cls.png"]


def test_samples_have_the_keys_that_webdataset_gives_them(tmp_path):
    """Folders may have dots in their names; further extensions belong to the member and not to the key."""
    others = ["v1.2/a.cls", "no-extension", "v1.2/none", ".hidden", "v1.2/a.json", "x.txt"]
    write_tar(tmp_path / "x.tar", [(name, b"1") for name in NAMES])
    images = [name for name in NAMES if tar_index.split_name(name)[1] in IMAGES]
    assert tar_index.index_tar(tmp_path / "x.tar").keys == [base_plus_ext(name)[0] for name in images]
    for name in NAMES + others:
        key, extension = base_plus_ext(name)
        assert tar_index.split_name(name) == ((key, extension.lower()) if key else ("", ""))


@pytest.mark.parametrize(
    "mode, channels, size", [("L", 1, (20, 12)), ("L", 3, (8, 8)), ("RGB", 1, (5, 9)), ("RGBA", 3, (20, 12))]
)
def test_every_picture_becomes_its_middle_square_of_the_wanted_bands(tmp_path, mode, channels, size):
    (image,) = pictures(1, size, mode)
    tar_writing.write_tar(tmp_path / "x.tar", [Record("k", image, 0)], SIDE, channels, CENTRE_CROP)
    (sample,) = webdataset.WebDataset(str(tmp_path / "x.tar"), shardshuffle=False)
    pixels, stream = np.asarray(Image.open(io.BytesIO(sample["png"]))), io.BytesIO()
    assert pixels.shape == ((SIDE, SIDE) if channels == 1 else (SIDE, SIDE, 3))
    image.save(stream, "PNG")
    assert np.array_equal(pixels.reshape(SIDE, SIDE, channels), decode(stream.getvalue(), channels, SIDE, CENTRE_CROP))


def test_a_picture_whose_numbers_have_no_known_range_is_named(tmp_path):
    with pytest.raises(UserError, match="^train-ant: pixels are floating-point numbers, whose range is not known$"):
        tar_writing.write_tar(tmp_path / "x.tar", [Record("train-ant", Image.new("F", (8, 8)), 0)], 8, 1, CENTRE_CROP)
