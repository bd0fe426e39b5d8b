import shutil

import pytest
from PIL import Image

from hpcddm.config.data import DataSettings
from hpcddm.config.schema import settings_to_hash, validate
from hpcddm.errors import ConfigError, UserError
from tests.data.refusals import assert_refused
from tests.helpers import tiny
from tests.sources.opening import records_of, source, split_of


def folder(place, classes, colour):
    """A folder of classes, one held-out image in each."""
    for name, count in classes.items():
        for number in range(count):
            path = place / ("train" if number else "heldout") / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4), colour).save(path)
    return {"name": "image_folder", "folder": str(place)}


@pytest.fixture
def two(tmp_path):
    """Two collections that have a class in common."""
    first = folder(tmp_path / "a", {"cat": 3, "dog": 2}, (255, 0, 0)) | {"collection": "red"}
    second = folder(tmp_path / "b", {"ant": 2, "cat": 4}, (0, 0, 255)) | {"collection": "blue"}
    return [first, second]


def test_collections_stand_one_behind_the_other_with_classes_by_name(two):
    records = records_of("collections", sources=two)
    assert split_of("collections", sources=two).class_names == ["ant", "cat", "dog"]
    assert [record.label for record in records] == [1, 1, 2, 0, 1, 1, 1]
    assert [record.key.partition("/")[0] for record in records] == ["red"] * 3 + ["blue"] * 4
    assert [record.image.getpixel((0, 0))[0] for record in records] == [255] * 3 + [0] * 4
    assert len({record.key for record in records}) == 7
    assert len(records_of("collections", "heldout", sources=two)) == 4


def test_what_one_has_not_all_have_not(two, tmp_path):
    alone = {"name": "image_folder", "folder": str(tmp_path / "c"), "collection": "plain", "caption": "a plain one"}
    for split in ("train", "heldout"):
        (tmp_path / "c" / split).mkdir(parents=True)
        shutil.copy(tmp_path / "a" / "train" / "cat" / "1.png", tmp_path / "c" / split / "x.png")
    records = split_of("collections", sources=[*two, alone])
    assert records.labels is None and records.class_names == [] and not records.has_captions
    assert all(records[number].label is None and records[number].caption is None for number in range(len(records)))
    named = [source | {"caption": "a {class}"} for source in two]
    captions = [record.caption for record in records_of("collections", sources=[*named, alone])]
    assert captions[-3:] == ["a cat", "a cat", "a plain one"]


def test_all_collections_that_are_missing_are_named_at_once(two, tmp_path):
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(UserError) as caught:
        split_of("collections", sources=two)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2 and str(tmp_path / "a") in lines[0] and str(tmp_path / "b") in lines[1]


def test_a_changed_collection_or_name_is_other_content(two):
    renamed = [two[0] | {"collection": "crimson"}, two[1]]
    contents = [source("collections", sources=of).content_hash() for of in (two, renamed, two[:1])]
    assert len(set(contents)) == 3


DATA = {"image_size": 8, "num_classes": 3}


def test_an_experiment_names_them_in_a_list(two):
    data = validate(DataSettings, {"source": two} | DATA, "x")
    assert data.source.name == "collections" and [entry.collection for entry in data.source.sources] == ["red", "blue"]
    assert [entry["collection"] for entry in settings_to_hash(data)["source"]["sources"]] == ["red", "blue"]
    alone = validate(DataSettings, {"source": {"name": "idx", "folder": "x"}} | DATA, "x")
    assert "collection" not in settings_to_hash(alone)


WRONG_LISTS = [
    ({"collection": "red"}, "needs a name of its own"),
    ({"collection": None}, "needs a name of its own"),
    ({"name": "webdataset", "heldout": {"share": 0.1}}, "red: its pictures cannot be mixed with tars; pack "),
    ({"colection": "x"}, r"data\.source\.1\.colection: unknown key"),
]


@pytest.mark.parametrize("change, error", WRONG_LISTS)
def test_a_wrong_list_is_refused_by_name(two, change, error, tmp_path):
    assert_refused(error, tiny, tmp_path, data__source=[two[0], two[1] | change], error=ConfigError)
    with pytest.raises(ConfigError, match=r"data\.source: an empty list; name at least one"):
        tiny(tmp_path, data__source=[])
