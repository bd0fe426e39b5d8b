"""Lists of collections of tars, each with its own folder, layout and held-out samples."""

import re
import shutil
import subprocess
import tarfile

import pytest
from PIL import Image

from hpcddm.config.data import DataSettings
from hpcddm.config.schema import hashed, validate
from hpcddm.data.adopted import index_adopted
from hpcddm.data.layout import Field, Layout
from hpcddm.errors import ConfigError, UserError
from tests.data.sources.opening import source, split_of
from tests.helpers import tiny
from tests.pictures import IMG2DATASET


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
        | {"caption": "json:caption", "qualified": True},
    ]


def test_tars_stand_one_behind_the_other_each_as_its_own_collection_says(two):
    tars = source("tar_collections", of=two).tars("train")
    assert [tar.path.name for tar in tars] == ["00000.tar", "00001.tar", "00002.tar", "x.tar"]
    assert [tar.prefix for tar in tars] == ["emoji/"] * 3 + ["other/x/"]
    assert [tar.layout.caption for tar in tars] == [Field("txt")] * 3 + [Field("json", "caption")]
    keys = [f"{number}" for number in range(400)]
    assert all(tars[0].is_of_split(key) for key in keys)
    assert 250 < sum(tars[3].is_of_split(key) for key in keys) < 350
    assert [tar.path.name for tar in source("tar_collections", of=two).tars("heldout")] == ["00003.tar", "x.tar"]


def test_what_submit_knows_of_all_is_what_it_knows_of_each(two):
    opened = split_of("tar_collections", of=two)
    first, second = (split_of(**own) for own in two)
    assert len(opened) == len(first) + len(second) and not opened.is_exact
    assert opened.has_captions and not opened.has_labels and "aesthetic" in opened.known
    assert opened[0].key == f"emoji/{first[0].key}" and opened[len(first)].key == f"other/{second[0].key}"


def test_a_changed_collection_or_name_is_other_content(two, tmp_path):
    moved = two[1] | {"folder": str(shutil.copytree(two[1]["folder"], tmp_path / "moved"))}
    renamed = two[1] | {"collection": "another"}
    contents = [source("tar_collections", of=of).content() for of in (two, [two[0], moved], [two[0], renamed])]
    assert contents[0] == contents[1] != contents[2]


def test_a_column_that_only_some_have_is_refused_with_the_way_out(two):
    first = [two[0], two[1] | {"caption": None}]
    with pytest.raises(UserError, match="emoji has captions and other none; say caption: null for emoji"):
        split_of("tar_collections", of=first)


def test_an_experiment_names_them_in_a_list(two, tmp_path):
    data = validate(DataSettings, {"source": two, "image_size": 8}, "x")
    assert data.source.name == "tar_collections" and data.source.adopts_tars
    assert [entry["collection"] for entry in hashed(data)["source"]["of"]] == ["emoji", "other"]
    with pytest.raises(ConfigError, match="emoji: tars are tar_collections"):
        tiny(tmp_path, data__source={"name": "collections", "of": two})


def test_a_folder_packed_as_it_is_advised_has_keys_without_dots(two, tmp_path):
    folder = tmp_path / "pictures"
    (folder / "shirts").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "shirts" / "1.png")
    with pytest.raises(ConfigError, match="where folders are no classes") as refused:
        tiny(tmp_path, data__source=[two[0], {"name": "image_folder", "folder": str(folder), "collection": "ours"}])
    command = re.search(r"\((tar .*FOLDER \.)\)", str(refused.value))[1].replace("FOLDER", str(folder))
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert index_adopted(tmp_path / "ours.tar", Layout()).index.keys == ["shirts/1"]
