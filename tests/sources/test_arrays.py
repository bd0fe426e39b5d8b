import io
import os
import zipfile

import h5py
import numpy as np
import pytest

from hpcddm.errors import UserError
from hpcddm.sources import array_files
from hpcddm.sources.heldout_share import is_heldout
from tests import pictures
from tests.data.refusals import assert_refused
from tests.sources.opening import records_of, source, split_of

COUNT = 40
NAMES = {"images": "images", "labels": "labels", "captions": "captions"}


@pytest.fixture(scope="module")
def emoji(tmp_path_factory):
    """Pixels, classes and captions of 40 pictures."""
    folder = pictures.write_folder(tmp_path_factory.mktemp("emoji"))
    records = records_of("image_folder", folder=str(folder))[:COUNT]
    return {
        "images": np.stack([np.asarray(record.image) for record in records]),
        "labels": np.arange(COUNT) % 3,
        "captions": [f"{record.caption} caf\u00e9" for record in records],
    }


def write(path, arrays, **options):
    """Write arrays in the format that the name says."""
    if path.suffix == ".npz":
        (np.savez_compressed if options else np.savez)(path, **{name: np.array(rows) for name, rows in arrays.items()})
    else:
        with h5py.File(path, "w") as file:
            for name, rows in arrays.items():
                is_text = isinstance(rows, list)
                file.create_dataset(name, data=rows, **({"dtype": h5py.string_dtype()} if is_text else options))
    return {"file": str(path), "heldout": {"file": str(path)}}


FORMS = {
    "contiguous": ("a.h5", {}),
    "chunks": ("a.h5", {"chunks": True}),
    "compressed chunks": ("a.hdf5", {"compression": "gzip"}),
    "npz": ("a.npz", {}),
    "compressed npz": ("a.npz", {"compressed": True}),
}


@pytest.mark.parametrize("name, options", FORMS.values(), ids=FORMS)
def test_images_classes_and_captions_are_those_of_the_arrays(tmp_path, emoji, name, options):
    keys = write(tmp_path / name, emoji, **options) | NAMES
    for split in ("train", "heldout"):
        records = split_of("arrays", split, **keys)
        assert len(records) == COUNT and records.has_captions and records.class_names == []
        assert records.labels.tolist() == emoji["labels"].tolist()
        # Backwards, too.
        for number in (0, 7, COUNT - 1, 3):
            record = records[number]
            assert np.array_equal(np.asarray(record.image), emoji["images"][number])
            assert (record.key, record.label) == (f"{split}-{number:07d}", number % 3)
            assert record.caption == emoji["captions"][number]


@pytest.mark.parametrize("name", ["a.h5", "a.npz"])
@pytest.mark.parametrize("channels, mode", [(None, "L"), (1, "L"), (3, "RGB"), (4, "RGBA")])
@pytest.mark.parametrize("first", [False, True])
def test_images_of_all_channels(tmp_path, name, channels, mode, first):
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 7, channels or 1), dtype=np.uint8)
    stored = np.moveaxis(images, -1, 1).copy() if first else images
    stored = stored[..., 0] if channels is None and not first else stored
    keys = write(tmp_path / name, {"images": stored})
    record = records_of("arrays", **keys, channels_first=first)[4]
    assert record.image.mode == mode and record.image.size == (7, 6) and record.label is record.caption is None
    assert np.array_equal(np.asarray(record.image).reshape(images[4].shape), images[4])


def test_a_share_is_held_out_by_key(tmp_path, emoji):
    keys = write(tmp_path / "a.h5", emoji) | NAMES | {"heldout": {"share": 0.3}}
    train, held = (records_of("arrays", split, **keys) for split in ("train", "heldout"))
    assert sorted(record.key for record in train + held) == [f"{number:07d}" for number in range(COUNT)]
    assert all(is_heldout(record.key, 0.3) for record in held) and len(held) == 9
    for record in train + held:
        number = int(record.key)
        assert (record.label, record.caption) == (number % 3, emoji["captions"][number])
        assert np.array_equal(np.asarray(record.image), emoji["images"][number])


def test_content_is_that_of_the_files(tmp_path, emoji, monkeypatch):
    keys = write(tmp_path / "a.h5", emoji)
    other = write(tmp_path / "b.h5", emoji | {"images": 255 - emoji["images"]})
    mixed = keys | {"heldout": other["heldout"]}
    contents = {source("arrays", **changed).content_hash() for changed in (keys, other, mixed)}
    assert len(contents) == 3
    monkeypatch.setattr(array_files, "WHOLE_BYTES", 0)
    monkeypatch.setattr(array_files, "CHUNK_BYTES", 512)
    assert len({source("arrays", **changed).content_hash() for changed in (keys, other)} - contents) == 2


MANY = np.zeros((5, 6, 7, 3), np.uint8)
WRONG = {
    "no file": (None, {}, r"data.source.file: .*a.h5 is not a file"),
    "no array": ({"x": MANY}, {}, r"a.h5: has no array images; it has x"),
    "floats": ({"images": MANY / 1.0}, {}, r"a.h5: images: float64 \(5, 6, 7, 3\): needs uint8"),
    "first": ({"images": np.moveaxis(MANY, -1, 1)}, {}, r"looks like \(N, C, H, W\); set data.source.channels_first"),
    "not first": ({"images": MANY}, {"channels_first": True}, r"images: .*: channels_first needs \(N, C, H, W\)"),
    "flat": ({"images": MANY.reshape(5, -1)}, {}, r"images: uint8 \(5, 126\): needs \(N, H, W\) or \(N, H, W, C\)"),
    "empty": ({"images": MANY[:0]}, {}, r"images: 0 images, none of them for train"),
    "scalar": ({"images": np.uint8(3)}, {}, r"images: uint8 \(\): needs \(N, H, W\)"),
    "few labels": ({"images": MANY, "y": np.arange(4)}, {"labels": "y"}, r"y: int64 \(4,\): needs one integer"),
    "one-hot": ({"images": MANY, "y": np.eye(5)}, {"labels": "y"}, r"y: float64 \(5, 5\): needs one integer for each"),
    "negative": ({"images": MANY, "y": np.arange(5) - 1}, {"labels": "y"}, r"a.h5: y: -1 is not a class"),
    "numbers": ({"images": MANY, "t": np.arange(5)}, {"captions": "t"}, r"t: int64 \(5,\): needs one text for each"),
}


@pytest.mark.parametrize("arrays, keys, message", WRONG.values(), ids=WRONG)
def test_a_wrong_array_is_named_with_its_file(tmp_path, arrays, keys, message):
    place = tmp_path / "a.h5"
    stated = write(place, arrays) if arrays else {"file": str(place), "heldout": {"share": 0.1}}
    assert_refused(message, split_of, "arrays", **stated, **keys)


def test_objects_and_columns_first_are_refused_in_npz(tmp_path):
    for images in (np.array([b"x", None]), np.asfortranarray(MANY)):
        with pytest.raises(UserError, match="a.npz: images: Python objects, a scalar, or an array in Fortran's order"):
            split_of("arrays", **write(tmp_path / "a.npz", {"images": images}))


@pytest.mark.parametrize("name", ["a.h5", "a.npz"])
@pytest.mark.parametrize("kept", [0, 0.5, 0.98])
def test_a_torn_file_is_named(tmp_path, emoji, name, kept):
    keys = write(tmp_path / name, emoji)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(UserError, match=f"{name}: (neither HDF5 nor npz, or a torn one|.*a torn or damaged file)"):
        records_of("arrays", **keys)


@pytest.mark.parametrize("name, options", [FORMS["compressed chunks"], FORMS["compressed npz"]])
def test_flipped_bits_in_compressed_images_are_named(tmp_path, emoji, name, options):
    keys = write(tmp_path / name, {"images": emoji["images"]}, **options)
    whole = bytearray((tmp_path / name).read_bytes())
    middle = len(whole) // 2
    whole[middle : middle + 64] = bytes(255 - byte for byte in whole[middle : middle + 64])
    (tmp_path / name).write_bytes(whole)
    assert_refused(f"{name}: images: cannot be read .*; a torn or damaged file", records_of, "arrays", **keys)


def npy(shape, size=0):
    """An npy file that says this shape, and has so many bytes behind its header."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(size)


OTHER_BYTES = [((1 << 40, 8, 8, 3), 64), ((1 << 62, 1 << 62), 0), ((-4, -4), 16), ((3,), 16)]
TOO_LARGE = ((1 << 24,), 1 << 24)


@pytest.mark.parametrize("shape, size", [*OTHER_BYTES, TOO_LARGE])
def test_an_archive_whose_array_says_other_bytes_than_it_has_or_too_many_is_named(tmp_path, shape, size):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("images.npy", npy(shape, size))
    with pytest.raises(UserError, match=r"a.npz: images: declares .* bytes of the .* that its archive of"):
        array_files.open_rows(tmp_path / "a.npz", "images")


def test_a_pipe_as_a_file_of_arrays_is_named_and_nothing_waits(tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    for read in (array_files.content_hash, array_files.array_names, lambda path: array_files.open_rows(path, "images")):
        assert_refused("a.npz: is (a pipe instead of|not) a file", read, tmp_path / "a.npz")
