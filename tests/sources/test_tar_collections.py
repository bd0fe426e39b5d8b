"""Lists of collections of tars, each with its own folder, layout and held-out samples."""

import json
import re
import shutil
import subprocess
import tarfile

import pytest
from PIL import Image

from hpcddm.config.data import DataSettings
from hpcddm.config.schema import settings_to_hash, validate
from hpcddm.data.tars.tar_layout import TarLayout, ValueLocation
from hpcddm.errors import ConfigError, UserError
from tests.data.oddities import index_existing_tar
from tests.helpers import REPOSITORY, tiny
from tests.pictures import IMG2DATASET
from tests.sources.opening import source, split_of
from tests.sources.test_huggingface import images, write

HUGGING_FACE = REPOSITORY / "tests" / "fixtures" / "huggingface"


@pytest.fixture
def two(tmp_path):
    """The tars of img2dataset, and one of them with other keys whose captions are in its JSON objects alone."""
    folder = tmp_path / "other"
    folder.mkdir()
    with tarfile.open(IMG2DATASET / "00000.tar") as read, tarfile.open(folder / "x.tar", "w") as written:
        for member in read:
            if not member.name.endswith(".txt"):
                written.addfile(member, read.extractfile(member))
    return [
        {"name": "webdataset", "folder": str(IMG2DATASET), "heldout": {"shards": 1}, "collection": "emoji"},
        {"name": "webdataset", "folder": str(folder), "heldout": {"share": 0.25}, "collection": "other"}
        | {"caption": "json:caption", "prefix_keys": True},
    ]


def test_tars_stand_one_behind_the_other_each_as_its_own_collection_says(two):
    tars = source("tar_collections", sources=two).tars("train")
    assert [tar.path.name for tar in tars] == ["00000.tar", "00001.tar", "00002.tar", "x.tar"]
    assert [tar.prefix for tar in tars] == ["emoji/"] * 3 + ["other/x/"]
    assert [tar.layout.caption for tar in tars] == [ValueLocation("txt")] * 3 + [ValueLocation("json", "caption")]
    keys = [f"{number}" for number in range(400)]
    assert all(tars[0].is_of_split(key) for key in keys)
    assert 250 < sum(tars[3].is_of_split(key) for key in keys) < 350
    assert [tar.path.name for tar in source("tar_collections", sources=two).tars("heldout")] == ["00003.tar", "x.tar"]


def test_what_submit_knows_of_all_is_what_it_knows_of_each(two):
    opened = split_of("tar_collections", sources=two)
    first, second = (split_of(**own) for own in two)
    assert len(opened) == len(first) + len(second) and not opened.is_exact
    assert opened.has_captions and not opened.has_labels and "aesthetic" in opened.known
    assert opened[0].key == f"emoji/{first[0].key}" and opened[len(first)].key == f"other/{second[0].key}"


@pytest.mark.parametrize("kinds, has_names", [(("saved", "hub"), True), (("saved", "pandas"), False)])
def test_classes_have_the_names_on_which_all_collections_agree(kinds, has_names):
    own = {"name": "huggingface", "caption": "text"}
    sources = [own | {"folder": str(HUGGING_FACE / kind), "collection": kind} for kind in kinds]
    names = json.loads((HUGGING_FACE / "read_by_datasets.json").read_text())["names"]
    assert source("tar_collections", sources=sources).class_names() == (names if has_names else [])


def test_one_number_for_two_classes_is_refused(tmp_path):
    sources = []
    for collection, labels in (("a", ["cat", "dog"]), ("b", ["dog", "owl"])):
        for name in ("train", "validation"):
            write(tmp_path / collection / f"{name}.parquet", **images(2, label=labels))
        folder = str(tmp_path / collection)
        sources.append({"name": "huggingface", "folder": folder, "caption": None, "collection": collection})
    with pytest.raises(UserError, match="class 0 is 'cat' in a and 'dog' in b; set label: null"):
        split_of("tar_collections", sources=sources)
    assert len(split_of("tar_collections", sources=[own | {"label": None} for own in sources])) == 4


def test_a_changed_collection_or_name_is_other_content(two, tmp_path):
    moved = {"folder": str(shutil.copytree(two[1]["folder"], tmp_path / "moved"))}
    lists = [[two[0], two[1] | change] for change in ({}, moved, {"collection": "another"})]
    contents = [source("tar_collections", sources=own).content_hash() for own in lists]
    assert contents[0] == contents[1] != contents[2]


def test_a_column_that_only_some_have_is_refused_with_the_way_out(two):
    first = [two[0], two[1] | {"caption": None}]
    with pytest.raises(UserError, match="emoji has captions and other none; set caption: null for emoji"):
        split_of("tar_collections", sources=first)


def test_an_experiment_names_them_in_a_list(two, tmp_path):
    data = validate(DataSettings, {"source": two, "image_size": 8}, "x")
    assert data.source.name == "tar_collections" and data.source.uses_existing_tars
    assert [entry["collection"] for entry in settings_to_hash(data)["source"]["sources"]] == ["emoji", "other"]
    with pytest.raises(ConfigError, match="emoji: tars are tar_collections"):
        tiny(tmp_path, data__source={"name": "collections", "sources": two})


def test_a_folder_packed_as_it_is_advised_has_keys_without_dots(two, tmp_path):
    folder = tmp_path / "pictures"
    (folder / "shirts").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "shirts" / "1.png")
    with pytest.raises(ConfigError, match="where folders are not classes") as refused:
        tiny(tmp_path, data__source=[two[0], {"name": "image_folder", "folder": str(folder), "collection": "ours"}])
    command = re.search(r"\((tar .*FOLDER \.)\)", str(refused.value))[1].replace("FOLDER", str(folder))
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert index_existing_tar(tmp_path / "ours.tar", TarLayout()).index.keys == ["shirts/1"]
