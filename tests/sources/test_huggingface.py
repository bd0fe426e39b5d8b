"""Data sets of Hugging Face, written by `datasets` and pandas: read in place as their own reader reads them."""

import hashlib
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from hpcddm.config import variants
from hpcddm.config.schema import validate
from hpcddm.config.sources import SourceSettings
from hpcddm.data.image_decoding import read_image, to_pixels
from hpcddm.data.open_files import RowGroupCache, open_file
from hpcddm.errors import UserError
from hpcddm.runs.passed_over import count_items
from hpcddm.sources.base import Source
from hpcddm.sources.heldout_share import is_heldout
from tests.data.refusals import assert_refused
from tests.helpers import REPOSITORY

FIXTURES = REPOSITORY / "tests" / "fixtures" / "huggingface"
READ = json.loads((FIXTURES / "read_by_datasets.json").read_text())
KINDS = ("saved", "hub", "pandas", "small_groups")
BY_OFFSET = ("saved", "hub")
"""Those whose images are stored as they are."""


def source(folder, **keys):
    settings = {"name": "huggingface", "folder": str(folder), "caption": "text"} | keys
    return variants.create(Source, validate(SourceSettings, settings, "data.source"))


def check(content):
    return read_image(content).size


def samples(files):
    """Key, SHA-256 of the pixels in RGB, size, class, caption of all samples, read as a training reads them."""
    found = []
    cache = RowGroupCache()
    for file in files:
        indexed = file.index(check)
        assert indexed.broken == []
        index, opened = indexed.index, open_file(file.path, file.entry(), cache)
        for row, key in enumerate(index.keys):
            content = opened.content(int(index.offsets[row]), int(index.sizes[row]))
            pixels = np.asarray(to_pixels(read_image(content), 3))
            size = list(read_image(content).size)
            assert indexed.metadata[row] == {"width": size[0], "height": size[1]}
            digest = hashlib.sha256(pixels.tobytes()).hexdigest()
            found.append((key, digest, size, index.labels[row], index.captions[row]))
    return found


@pytest.fixture
def copy(tmp_path):
    """Return a function that copies one of the data sets, to be changed."""
    return lambda kind: Path(shutil.copytree(FIXTURES / kind, tmp_path / kind))


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_classes_and_captions_are_those_of_the_own_reader(kind):
    for split, name in (("train", "train"), ("heldout", "validation")):
        found = samples(source(FIXTURES / kind).tars(split))
        expected = READ["splits"][name]
        assert [list(sample[1:]) for sample in found] == [row[:4] for row in expected]
        assert len({sample[0] for sample in found}) == len(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_images_stored_as_they_are_have_byte_offsets_and_others_rows(kind):
    for file in source(FIXTURES / kind).tars("train"):
        assert (file.entry().column is None) == (kind in BY_OFFSET)
        index = file.index().index
        if kind in BY_OFFSET:
            content = file.path.read_bytes()
            places = zip(index.offsets.tolist(), index.sizes.tolist(), strict=True)
            assert all(read_image(content[offset : offset + size]) for offset, size in places)
            assert file.row_groups() == []
        else:
            assert index.offsets.tolist() == list(range(15))
            assert [group.rows for group in file.row_groups()] == ([4, 4, 4, 3] if kind == "small_groups" else [15])


@pytest.mark.parametrize("kind", KINDS)
def test_a_submission_knows_numbers_classes_and_a_sample(kind):
    opened = source(FIXTURES / kind).open_split("train")
    assert len(opened) == len(READ["splits"]["train"]) and opened.tar_count == 2
    assert opened.class_names == ([] if kind == "pandas" else READ["names"])
    assert opened.has_labels and opened.has_captions and opened.passed_over == []
    record = opened[20]
    assert (record.label, record.caption) == tuple(READ["splits"]["train"][20][2:4])
    assert opened.keys("", 1) == [sample[0] for sample in samples(source(FIXTURES / kind).tars("train")[:1])]


@pytest.mark.parametrize("kind", ["hub", "pandas"])
def test_keys_stay_when_a_file_is_added_behind(copy, kind):
    folder = copy(kind)
    before = [sample[:2] for sample in samples(source(folder).tars("train"))]
    files = sorted(folder.rglob("train-*"))
    for number, path in enumerate([*files, files[0]]):
        shutil.copy(path, path.parent / f"train-{number:05d}-of-00003.parquet")
    for path in files:
        path.unlink()
    after = [sample[:2] for sample in samples(source(folder).tars("train"))]
    assert after[: len(before)] == before and len(after) == len(before) + 15
    assert before[0][0] == ("data/" if kind == "hub" else "") + "train-00000/0"


def test_a_column_can_hold_the_keys():
    found = samples(source(FIXTURES / "hub", key="id").tars("train"))
    assert [sample[0] for sample in found][:2] == ["sample-000", "sample-001"]
    assert source(FIXTURES / "hub", key="id").open_split("train").keys("", 1)[14] == "sample-014"


@pytest.mark.parametrize("item", [0, 1])
def test_one_of_several_captions_is_taken_by_its_number(item):
    found = samples(source(FIXTURES / "saved", caption="captions", caption_item=item).tars("heldout"))
    assert [sample[4] for sample in found] == [row[4][item] for row in READ["splits"]["validation"]]


def test_a_share_of_the_rows_is_held_out():
    own = source(FIXTURES / "hub", heldout={"share": 0.3})
    train, heldout = ([sample[0] for sample in samples(own.tars(split))] for split in ("train", "heldout"))
    every = [sample[0] for sample in samples(source(FIXTURES / "hub").tars("train"))]
    assert sorted(train + heldout) == sorted(every)
    assert heldout == [key for key in every if is_heldout(key, 0.3)] and heldout


def test_columns_are_values_of_a_filter():
    own = source(FIXTURES / "small_groups")
    assert {"aesthetic", "id", "text"} <= own.open_split("train").known
    indexed = own.tars("train")[1].index(check, ["aesthetic"])
    assert [values["aesthetic"] for values in indexed.metadata] == [number / 4 for number in range(15, 30)]


def test_other_files_and_splits_are_counted(copy):
    folder = copy("saved")
    (folder / "train" / "cache-0123.arrow").write_bytes(b"")
    (folder / "notes.md").write_text("notes")
    shutil.copytree(folder / "validation", folder / "extra")
    counted = count_items(source(folder).open_split("train").passed_over)
    expected = {"caches of datasets": ["train/cache-0123.arrow"], "files .md": ["notes.md"]}
    expected["splits that are not used"] = ["extra"]
    assert {reason: count["first"] for reason, count in counted.items()} == expected


def image_bytes(number=0):
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), (number, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def write_both(folder, **columns):
    for name in ("train", "validation"):
        write(folder / f"{name}.parquet", **columns)


def images(count, **others):
    return {"image": [{"bytes": image_bytes(number), "path": f"{number}.png"} for number in range(count)]} | others


def test_captions_inside_structs_of_a_list(tmp_path):
    sentences = [[{"raw": f"a {number}"}, {"raw": f"b {number}"}] for number in range(3)]
    write_both(tmp_path, **images(3, sentences=sentences))
    (file,) = source(tmp_path, caption="sentences.raw", caption_item=1, label=None).tars("train")
    assert file.index(check).index.captions == ["b 0", "b 1", "b 2"]


def test_broken_rows_are_named_and_the_others_kept(tmp_path):
    rows = images(8, label=[0, 1, -1, 0, 1, 0, 1, None], text=[*"abcdef", None, "h"])
    rows["image"][1] = None
    rows["image"][3] = {"bytes": None, "path": "https://example.org/3.png"}
    rows["image"][4] = {"bytes": image_bytes(4)[:40], "path": None}
    write_both(tmp_path, **rows)
    (file,) = source(tmp_path, label="label").tars("train")
    indexed = file.index(check)
    assert indexed.index.keys == ["train/0", "train/5"]
    reasons = [
        "no image$",
        "its class is -1, they are numbered from 0",
        "no bytes of an image but only the address https",
    ]
    reasons += [".*(truncated|cannot|broken)", "no caption, others have one", "no class, others have one"]
    assert [key for key, _ in indexed.broken] == [f"train/{row}" for row in (1, 2, 3, 4, 6, 7)]
    assert all(re.match(reason, said) for reason, (_, said) in zip(reasons, indexed.broken, strict=True))


def changed(content):
    """A damage that makes other bytes of a file's."""
    return lambda path: path.write_bytes(content(path.read_bytes()))


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 26146\n"
TRUNCATED = (changed(lambda whole: whole[:-2000]), "damaged or truncated")
TORN_FOOTER = (changed(lambda whole: whole[:-300] + bytes(200) + whole[-100:]), "damaged or truncated")
LEFT_POINTER = (changed(lambda whole: POINTER), "git lfs pull")
REMOVED = (Path.unlink, "missing")
OTHER_VERSION = (lambda path: shutil.copy(path, str(path).replace("of-00002", "of-00007")), "both of the split train")
NO_END = (changed(lambda whole: whole[:-8]), "no end of the stream")
DAMAGES = [(kind, *damage) for kind in ("hub", "small_groups") for damage in (TRUNCATED, TORN_FOOTER, LEFT_POINTER)]
DAMAGES += [("saved", *damage) for damage in (TRUNCATED, NO_END, REMOVED, LEFT_POINTER)]
DAMAGES += [("hub", *REMOVED), ("hub", *OTHER_VERSION)]


@pytest.mark.parametrize(("kind", "damage", "reason"), DAMAGES)
def test_damage_is_one_line_that_names_the_file_and_what_to_do(copy, kind, damage, reason):
    folder = copy(kind)
    path = sorted(folder.rglob(f"*-0000{0 if reason == LEFT_POINTER[1] else 1}-of-00002.*"))[0]
    damage(path)
    with pytest.raises(UserError) as raised:
        own = source(folder)
        own.open_split("train")
        for file in own.tars("train"):
            file.index(check)
    text = str(raised.value)
    assert path.name in text and reason in text and "\n" not in text and ";" in text


REFUSALS = {
    "addresses": ({"url": ["https://example.org/1.jpg"]}, {}, "image", "img2dataset"),
    "paths": ({"image": ["1.jpg"]}, {}, "image", "img2dataset"),
    "nothing like an image": ({"x": [1]}, {}, "image", "x (int64)"),
    "two columns of images": (images(1) | {"mask": images(1)["image"]}, {}, "image", "image, mask"),
    "two columns of captions": (images(1, text=["a"], prompt=["b"]), {}, "caption", "text, prompt"),
    "a list of captions": (images(1, text=[["a", "b"]]), {}, "caption", "data.source.caption_item"),
    "a class that is a fraction": (images(1, label=[0.5]), {}, "label", "double"),
    "base64": ({"image": ["iVBORw0KGgo="]}, {}, "image", "base64"),
    "only paths": ({"image": [{"bytes": None, "path": "1.jpg"}]}, {}, "image", "img2dataset"),
    "a caption that is not there": (images(1), {"caption": "words"}, "caption", "words"),
    "keys that are not there": (images(1), {"key": "id"}, "key", "id"),
    "an image that is a number": (images(1, x=[1]), {"image": "x"}, "image", "int64"),
}


def test_columns_that_cannot_be_used_are_named_with_the_key(tmp_path):
    for columns, keys, key, word in REFUSALS.values():
        write_both(tmp_path, **columns)
        own, message = (
            source(tmp_path, **({"caption": "auto"} | keys)),
            rf"(?=.*data\.source\.{key}).*{re.escape(word)}",
        )
        assert_refused(message, own.open_split, "train")


NAMED_SPLITS = [
    (["data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"], ["train", "test"]),
    (["train/0000.parquet", "validation/0000.parquet", "test/0000.parquet"], ["train", "validation"]),
    (["train.parquet", "val.parquet"], ["train", "val"]),
    (["my-training-set.parquet", "dev_set.parquet"], ["training", "dev"]),
    (["train/part-00000-of-00001.parquet", "test/part-00000-of-00001.parquet"], ["train/", "test/"]),
    (["extra.parquet", "train.parquet", "val.parquet"], ["train", "val"]),
    ([f"cifar10-{split}-00000-of-00001.parquet" for split in ("train", "test")], ["cifar10-train", "cifar10-test"]),
]


@pytest.mark.parametrize("names, expected", NAMED_SPLITS)
def test_splits_are_found_by_the_names_that_datasets_gives_them(tmp_path, names, expected):
    for number, name in enumerate(names):
        write(tmp_path / name, **images(2, text=[f"{number}", name]))
    for split, word in zip(("train", "heldout"), expected, strict=True):
        (file,) = source(tmp_path).tars(split)
        assert word in file.name


def test_a_split_of_another_name_and_of_two_data_sets_is_asked_for(tmp_path):
    write(tmp_path / "en" / "full-00000-of-00001.parquet", **images(2, text=["a", "b"]))
    assert_refused("data.source.train: .* has no split train, but full", source(tmp_path).open_split, "train")
    (file,) = source(tmp_path, train="full", heldout={"share": 0.5}).tars("train")
    assert file.name == "en/full-00000-of-00001.parquet"
    write(tmp_path / "fr" / "full-00000-of-00001.parquet", **images(2, text=["c", "d"]))
    with pytest.raises(UserError, match="en/full-.* and fr/full-.* are both of the split full"):
        source(tmp_path, train="full", heldout={"share": 0.5}).open_split("train")
    (file,) = source(tmp_path, train="full", heldout={"share": 0.5}, files="fr/*.parquet").tars("train")
    assert file.name == "fr/full-00000-of-00001.parquet"


def test_a_numbered_name_is_a_split_as_a_whole(tmp_path):
    names = {"test_clean", "train_clean", "train_noisy", "train.100"}
    for name in (*names, "validation"):
        write(tmp_path / "data" / f"{name}-00000-of-00001.parquet", **images(1, text=[name]))
    with pytest.raises(UserError, match="no split train, but test_clean, train.100, train_clean, train_noisy, valid"):
        source(tmp_path).open_split("train")
    for name in ("train_noisy", "train.100"):
        own = source(tmp_path, train=name)
        assert [file.index(check).index.captions for file in own.tars("train")] == [[name]]
        assert {item.name for item in own.unused_files()} == names - {name}


def test_files_of_one_name_in_two_folders_are_one_set_if_a_pattern_says_so(tmp_path):
    for year in ("2023", "2024"):
        write(tmp_path / year / "shard-0.parquet", **images(2, text=[year, year]))
    with pytest.raises(UserError, match=r"2023/shard-0.* 2024/shard-0.*data.source.files; '\*\*/\*.parquet' takes all"):
        source(tmp_path, heldout={"share": 0.5}).open_split("train")
    files = source(tmp_path, heldout={"share": 0.5}, files="**/*.parquet").tars("train")
    keys = [key for file in files for key in file.keys()]
    assert keys == ["2023/shard-0/0", "2023/shard-0/1", "2024/shard-0/0", "2024/shard-0/1"]


PLAIN = {"compression": "none", "use_dictionary": False}
WRITERS = {
    "small pages": (PLAIN | {"data_page_size": 200}, True),
    "pages of version 2": (PLAIN | {"data_page_version": "2.0"}, True),
    "an index of pages": (PLAIN | {"write_page_index": True}, True),
    "small groups": (PLAIN | {"row_group_size": 7}, True),
    "dictionaries": ({"compression": "none"}, False),
    "lengths apart": (PLAIN | {"column_encoding": {"jpg": "DELTA_LENGTH_BYTE_ARRAY"}}, False),
    "zstd": ({"compression": "zstd"}, False),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_image_is_found_whatever_the_writer(tmp_path, writer):
    options, has_offsets = WRITERS[writer]
    # Some images twice, and a row without one, which has no place.
    contents = [image_bytes(number % 20) for number in range(30)]
    contents[11] = None
    for name in ("train", "validation"):
        pq.write_table(pa.table({"jpg": contents}), tmp_path / f"{name}.parquet", **options)
    (file,) = source(tmp_path, caption=None).tars("train")
    index, opened = file.index(check).index, open_file(file.path, file.entry(), RowGroupCache())
    assert (file.entry().column is None) == has_offsets
    read = [opened.content(*place) for place in zip(index.offsets.tolist(), index.sizes.tolist(), strict=True)]
    assert read == [content for content in contents if content is not None]


OWLS = ["owl", "cat", None, "owl"]


@pytest.mark.parametrize("label", [OWLS, pa.array(OWLS).dictionary_encode()])
def test_texts_as_classes_are_numbered_in_alphabetical_order_over_all_files(tmp_path, label):
    write(tmp_path / "train.parquet", **images(4, label=label))
    write(tmp_path / "validation.parquet", **images(1, label=["ant"]))
    own = source(tmp_path, caption=None)
    assert own.class_names() == ["ant", "cat", "owl"]
    (train,), (heldout,) = own.tars("train"), own.tars("heldout")
    indexed = train.index(check)
    assert indexed.index.labels.tolist() == [2, 1, 2] and heldout.index(check).index.labels.tolist() == [0]
    assert indexed.broken == [("train/2", "no class, others have one")]
    assert own.open_split("train")[0].label == 2


def test_row_groups_are_kept_up_to_a_number_of_bytes():
    class Group:
        bytes = 10

    read = []
    cache = RowGroupCache(max_bytes=25)
    for number in (0, 1, 0, 2, 0, 1):
        cache.get(number, lambda own=number: read.append(own) or Group())
    assert read == [0, 1, 2, 1]
