"""Files and columns of Hugging Face data sets that do not fit together, or are not what a key says: one line each."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hpcddm.data.image_decoding import ImageError
from hpcddm.errors import UserError
from hpcddm.runs.passed_over import count_items
from tests.sources.test_huggingface import FIXTURES, check, image_bytes, images, source, write, write_both

INVALID_TEXT = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"a"]).buffers())


def refusal(folder, **keys):
    """The message about a data set that cannot be used."""
    with pytest.raises(UserError) as raised:
        own = source(folder, **({"caption": None} | keys))
        for split in ("train", "heldout"):
            own.open_split(split)
    text = str(raised.value)
    assert "\n" not in text and ";" in text
    return text


def write_classes(path, names):
    features = {"label": {"names": names, "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    pq.write_table(pa.table(images(2, label=[0, 1])).replace_schema_metadata(metadata), path)


@pytest.mark.parametrize("other", ["train-b.parquet", "validation.parquet"])
def test_files_that_number_their_classes_otherwise_are_refused(tmp_path, other):
    for name in ("train-a.parquet", "train-b.parquet", "validation.parquet"):
        write_classes(tmp_path / name, ["cat", "owl"])
    assert source(tmp_path, caption=None).open_split("train").class_names == ["cat", "owl"]
    write_classes(tmp_path / other, ["owl", "cat"])
    assert f"{other}: column label has other classes" in refusal(tmp_path)
    assert not source(tmp_path, caption=None, label=None).open_split("train").has_labels


@pytest.mark.parametrize("labels", [([0, 1], ["a", "b"]), (["a", "b"], [0, 1])])
@pytest.mark.parametrize("other", ["train-b.parquet", "validation.parquet"])
def test_classes_that_are_texts_in_some_files_only_are_refused(tmp_path, labels, other):
    for name in ("train-a.parquet", "train-b.parquet", "validation.parquet"):
        write(tmp_path / name, **images(2, label=labels[name == other]))
    assert f"{other}: column label has other classes" in refusal(tmp_path)


def test_a_file_with_other_columns_is_named_when_the_data_set_is_opened(tmp_path):
    write_both(tmp_path, **images(2, label=[0, 1]))
    write(tmp_path / "training.parquet", image=[image_bytes()] * 2, label=[0, 1])
    assert "training.parquet: column image has another type, binary" in refusal(tmp_path, label="label")
    write(tmp_path / "training.parquet", **images(2))
    assert "training.parquet: has no column label" in refusal(tmp_path, label="label")


ONE = {"text": ["a", "b"], "n": [1, 2], "meta": [{"y": 0}] * 2}
KEYS = {
    "image inside a column": ({"image": "image.bytes"}, "has no column image.bytes"),
    "class inside a column": ({"label": "meta.y"}, "has no column meta.y"),
    "key that is an image": ({"key": "image"}, "keys are texts"),
    "key that is a number": ({"key": "n"}, "keys are texts"),
    "caption that is a number": ({"caption": "n"}, "captions are texts"),
    "caption that is a number inside": ({"caption": "meta.y"}, "captions are texts"),
    "caption that is an image": ({"caption": "image"}, "captions are texts"),
    "field that is missing": ({"caption": "meta.z"}, "has no field z"),
    "field of a text": ({"caption": "text.z"}, "has no field z"),
    "absolute pattern": ({"files": "/data/*.parquet"}, "relative to the folder"),
    "empty pattern": ({"files": ""}, "relative to the folder"),
    "wrong pattern": ({"files": "a**b"}, "relative to the folder"),
}


def test_keys_that_name_no_usable_column_are_refused(tmp_path):
    write_both(tmp_path, **images(2, **ONE))
    for case, (keys, reason) in KEYS.items():
        text = refusal(tmp_path, **keys)
        assert text.startswith(f"data.source.{next(iter(keys))}: ") and reason in text, case


def test_names_of_columns_that_cannot_be_used_are_refused(tmp_path):
    write_both(tmp_path, **{"my.image": images(2)["image"]})
    assert "column my.image has a dot" in refusal(tmp_path)
    twice = pa.Table.from_arrays([pa.array([image_bytes()]), pa.array([0]), pa.array([1])], ["image", "x", "x"])
    pq.write_table(twice, tmp_path / "train.parquet")
    assert "two columns called x" in refusal(tmp_path)


def test_links_that_lead_nowhere_are_not_passed_over_silently(tmp_path):
    write_both(tmp_path, **images(2))
    (tmp_path / "notes").symlink_to("nowhere")
    passed_over = source(tmp_path, caption=None).open_split("train").passed_over
    assert count_items(passed_over)["links that lead nowhere"]["first"] == ["notes"]
    (tmp_path / "training.parquet").symlink_to("nowhere")
    assert "training.parquet: a link that leads nowhere" in refusal(tmp_path)
    assert len(source(tmp_path, caption=None, files="[tv]*n.parquet").open_split("train")) == 2


def test_a_file_beside_a_numbered_set_or_of_another_format_is_another_set(tmp_path):
    write_both(tmp_path, **images(2))
    write(tmp_path / "train-00000-of-00001.parquet", **images(2))
    assert "train-00000-of-00001.parquet and train.parquet are both of the split train" in refusal(tmp_path)
    assert len(source(tmp_path, caption=None, files="[tv]*n.parquet").open_split("train")) == 2
    (tmp_path / "train-00000-of-00001.parquet").unlink()
    table = pa.table(images(2))
    with pa.OSFile(str(tmp_path / "training.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    assert "train.parquet and training.arrow are both of the split train" in refusal(tmp_path)
    assert len(source(tmp_path, caption=None, files="*.parquet").open_split("train")) == 2


def test_a_first_row_that_cannot_be_used_is_named_with_the_next_step(tmp_path):
    write_both(tmp_path, **images(2, label=[-1, 0]))
    opened = source(tmp_path, caption=None).open_split("train")
    with pytest.raises(ImageError, match=r"train.parquet: row 0: its class is -1, .*; mend it, or choose other files"):
        opened[0]
    assert opened[1].label == 0


def test_a_saved_data_set_without_files_is_one_line(tmp_path):
    write_both(tmp_path, **images(2))
    (tmp_path / "state.json").write_text('{"_data_files": []}')
    assert "state.json lists no files" in refusal(tmp_path)


@pytest.mark.parametrize("kind", ["hub", "small_groups", "saved"])
def test_files_of_an_opened_data_set_do_not_stay_open(kind):
    before = len(os.listdir("/proc/self/fd"))
    splits = [source(FIXTURES / kind, heldout={"share": 0.5}).open_split(split) for split in ("train", "heldout")]
    assert len(splits[0]) == 15 and len(os.listdir("/proc/self/fd")) == before


def test_a_text_that_is_not_utf_8_is_one_broken_sample(tmp_path):
    texts = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    write_both(tmp_path, **images(3, text=texts, id=texts))
    (file,) = source(tmp_path).tars("train")
    assert file.index(check).broken == [("train/1", "its caption is not UTF-8")]
    (file,) = source(tmp_path, caption=None, key="id").tars("train")
    indexed = file.index(check)
    assert indexed.index.keys == ["a", "c"] and [reason for _, reason in indexed.broken] == ["its key is not UTF-8"]


def test_linked_folders_are_followed_once(tmp_path):
    write_both(tmp_path / "elsewhere", **images(2))
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "data").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "again").symlink_to(tmp_path / "images")
    (file,) = source(tmp_path / "images", caption=None).tars("train")
    assert file.name == "data/train.parquet"


def test_a_text_that_cannot_name_a_class_is_refused(tmp_path):
    for text in ("", "  ", "a\nb"):
        write_both(tmp_path, **images(2, label=["cat", text]))
        assert "data.source.label: " in refusal(tmp_path), text
    write_both(tmp_path, **images(2, label=INVALID_TEXT))
    assert "train.parquet: damaged" in refusal(tmp_path)
