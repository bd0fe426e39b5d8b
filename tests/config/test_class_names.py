"""Names of classes: as a list, from a file, and as a user types them."""

import json

import pytest

from hpcddm.config.class_names import class_number, read_names
from hpcddm.config.schema import settings_to_hash
from hpcddm.errors import ConfigError
from hpcddm.launch.submission import store_experiment
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from tests.helpers import hpcddm, tiny, write_experiment

NAMES = ["T-shirt/top", "Café au lait", "Ankle boot", "靴"]


@pytest.mark.parametrize(
    "name, content",
    [
        ("names.txt", "\n".join(NAMES).encode()),
        ("names.txt", ("\ufeff" + "\r\n".join(NAMES) + "\r\n\r\n").encode()),
        ("names.txt", ("\r".join(f"  {name}\t" for name in NAMES) + "\r").encode()),
        ("names.json", json.dumps(NAMES).encode()),
        ("names.txt", json.dumps(NAMES, ensure_ascii=False, indent=1).encode()),
        ("names.json", ("\ufeff" + json.dumps(NAMES)).encode()),
    ],
)
def test_a_file_has_a_name_per_line_or_is_a_json_list(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert read_names(tmp_path / name) == NAMES
    assert tiny(tmp_path, data__class_names=name).data.class_names == NAMES


WRONG_FILES = [
    ("names.txt", b"a\n\nc\nd\n", "the name of class 1 is empty"),
    ("names.txt", b"a\nb\nc\na\n", "classes 0 and 3 are both called 'a'; rename one"),
    ("names.txt", b"a\nb\n a\nd\n", "classes 0 and 2 are both called 'a'"),
    ("names.txt", b"", "the name of class 0 is empty"),
    ("names.txt", "a\nb\nc\nd".encode("utf-16"), "is not UTF-8 (byte 0); save it as UTF-8"),
    ("names.txt", "Café".encode("latin-1"), "is not UTF-8 (byte 3)"),
    ("names.txt", b"a\nb\nc\n\x1b[31md", "the name of class 3 contains a line break or another control character"),
    ("names.json", b'["a", "b", "c", "d\\ud800"]', "the name of class 3 contains"),
    ("names.json", b'{"0": "a", "1": "b"}', "holds no JSON list of names (Input should be a valid array)"),
    ("names.json", b'["a", "b", 3, null]', "holds no JSON list of names (2: Input should be a valid string)"),
    ("names.txt", b'["a", "b", "c", "d"', "holds no JSON list of names (Expecting ',' delimiter"),
    ("none.txt", None, "is missing"),
    (".", None, "is a folder instead of a file"),
]


@pytest.mark.parametrize("name, content, message", WRONG_FILES)
def test_a_file_that_does_not_name_every_class_is_an_error_of_one_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        tiny(tmp_path, data__class_names=name)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path}/tiny.yaml:") and f": data.class_names: {tmp_path / name}: {message}" in line


@pytest.mark.parametrize(
    "names, message",
    [
        (["a", "b", "c"], "data.class_names: 3 names for the 4 classes of data.num_classes; name every class once"),
        ([], "data.class_names: 0 names for the 4 classes"),
        (["a", "b", "b", "d"], "data.class_names: classes 1 and 2 are both called 'b'; rename one"),
        (["a", "b\nc", "c", "d"], "data.class_names: the name of class 1 contains a line break"),
        (["a", 1, "c", "d"], "data.class_names.1: input should be a valid string, found 1; put it in quotes"),
        ({"a": 0}, "data.class_names: input should be a valid list"),
    ],
)
def test_a_list_that_does_not_name_every_class_is_an_error_of_one_line(tmp_path, names, message):
    with pytest.raises(ConfigError) as caught:
        tiny(tmp_path, data__class_names=names)
    (line,) = str(caught.value).splitlines()
    assert message in line


def test_names_need_the_number_of_classes(tmp_path):
    changes = {"data__num_classes": None, "data__condition": {"name": "none"}, "evaluators__classifier": None}
    with pytest.raises(ConfigError, match=r"data.class_names: 4 names, but data.num_classes is not set; set it, or"):
        tiny(tmp_path, data__class_names=NAMES, **changes)


def test_a_path_is_relative_to_the_file_or_for_an_override_to_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "names.txt").write_text("a\nb\nc\nd")
    (tmp_path / "names.txt").write_text("e\nf\ng\nh")
    file = write_experiment(tmp_path / "beside", data__class_names="names.txt")
    monkeypatch.chdir(tmp_path)
    assert load_experiment(str(file)).data.class_names == ["a", "b", "c", "d"]
    assert load_experiment(str(file), ("data.class_names=names.txt",)).data.class_names == ["e", "f", "g", "h"]
    (tmp_path / "beside" / "names.txt").unlink()
    assert load_experiment(str(file), ("data.class_names=[i, j, k, l]",)).data.class_names == ["i", "j", "k", "l"]


def test_a_run_keeps_the_names_when_the_file_changes_and_when_it_moves(tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    store_experiment(tiny(tmp_path, data__class_names="names.txt"), RunDir(tmp_path / "run"))
    (tmp_path / "names.txt").write_text("other")
    (tmp_path / "run").rename(tmp_path / "moved")
    assert stored_experiment(RunDir(tmp_path / "moved")).data.class_names == NAMES
    assert "4 classes: T-shirt/top, Café au lait, Ankle boot, 靴" in hpcddm("status", tmp_path / "moved").stdout


def fingerprints(experiment):
    return {unit.key: unit.fingerprint_settings for unit in plan_units(experiment)}


def test_names_are_in_the_fingerprints_of_the_pages_alone(tmp_path):
    plain, named = tiny(tmp_path), tiny(tmp_path, data__class_names=NAMES)
    assert settings_to_hash(named.data) == settings_to_hash(plain.data)
    before, after = fingerprints(plain), fingerprints(named)
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {"cluster_report/all", "report/all"}
    assert all(after[key] == before[key] | {"data.class_names": NAMES} for key in changed)


@pytest.mark.parametrize("caption, is_changed", [(None, False), ("a photo", False), ("a photo of a {class}", True)])
@pytest.mark.parametrize("has_several", [False, True])
def test_tars_depend_on_names_that_their_captions_contain(tmp_path, caption, is_changed, has_several):
    (tmp_path / "train").mkdir()
    source = {"name": "image_folder", "folder": ".", "caption": caption, "heldout": {"share": 0.5}}
    several = [source | {"collection": "a"}, source | {"collection": "b", "caption": None}]
    changes = {"data__source": several if has_several else source}
    plain, named = tiny(tmp_path, **changes), tiny(tmp_path, data__class_names=NAMES, **changes)
    key = "shard/train-000"
    assert (fingerprints(plain)[key] != fingerprints(named)[key]) == is_changed


@pytest.mark.parametrize(
    "text, number",
    [("Ankle boot", 2), ("ANKLE BOOT", 2), (" ankle boot ", 2), ("2", 2), ("Cafe\u0301 au lait", 1), ("靴", 3)],
)
def test_a_class_is_known_by_its_name_in_any_case_or_by_its_number(text, number):
    assert class_number(text, NAMES) == number


@pytest.mark.parametrize(
    "text, nearest",
    [("Ankle boots", "nearest: Ankle boot;"), ("boot", "nearest: Ankle boot;"), ("T-shirt", "nearest: T-shirt/top;")]
    + [("4", "unknown; 4 classes"), ("", "unknown; 4 classes"), ("9" * 5000, "unknown; 4 classes")],
)
def test_an_unknown_class_is_an_error_with_the_nearest_names_and_all(text, nearest):
    with pytest.raises(ValueError) as caught:
        class_number(text, NAMES)
    assert nearest in str(caught.value)
    assert str(caught.value).endswith("4 classes: T-shirt/top, Café au lait, Ankle boot, 靴, or 0 to 3")
