"""The script that prepares drawings of emoji, on icons of two sets, and a folder of images that it makes of them."""

import importlib.util
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from hpcddm.errors import UserError
from tests.commands.archives import packed
from tests.helpers import EXPERIMENT, REPOSITORY, changed
from tests.sources.opening import records_of, split_of

SCRIPT = REPOSITORY / "experiments" / "emoji" / "prepare.py"
ICONS = REPOSITORY / "tests" / "fixtures" / "icons"
FLUENT, NOTO, TABLE = ICONS / "fluent-emoji-flat", ICONS / "noto", ICONS / "emojibase"
MARK = '<path fill="#000" d="M0 0h2v1h-1v1h-1z"/>'
"""Two pixels of the first line, and the first of the second: no two turns and flips of it are alike."""
INFO = {"name": "Set", "author": {"name": "Somebody"}, "license": {"title": "MIT"}}

spec = importlib.util.spec_from_file_location("prepare_emoji", SCRIPT)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


def prepared(folder, *sets, heldout=0.2, by="key", size=32):
    """Prepare sets; return the records of a split by their icons' full names, and the names of the groups."""
    script.prepare(folder, TABLE, sets or (FLUENT, NOTO), heldout, by, size)
    splits = {}
    for split in ("train", "heldout"):
        groups = split_of("image_folder", split, folder=str(folder)).class_names
        records = records_of("image_folder", split, folder=str(folder))
        # A key is SPLIT-GROUP-SET_ICON_png.
        named = {
            record.key.removeprefix(f"{split}-{groups[record.label]}-").removesuffix("_png").replace("_", ":"): record
            for record in records
        }
        assert len(named) == len(records)
        splits[split] = named
    return splits, groups


def all_of(*arguments, **keys):
    splits, _ = prepared(*arguments, **keys)
    return splits["train"] | splits["heldout"]


def drawn(record):
    return np.asarray(record.image).astype(int)


def one_set(folder, icons, **content):
    """Write a set."""
    folder.mkdir(exist_ok=True)
    (folder / "icons.json").write_text(json.dumps({"prefix": "set", "icons": icons} | content))
    (folder / "info.json").write_text(json.dumps(INFO))
    return folder


def drawings_of(*sets):
    names = script.UnicodeNames(TABLE, sets)
    return {drawing.key: drawing for one in sets for drawing in script.read_set(one, names, Counter())}


def test_every_icon_is_drawn_on_white_in_the_folder_of_its_split_and_group(tmp_path, capsys):
    found = all_of(tmp_path / "images")
    assert len(found) == 49
    for record in found.values():
        image = drawn(record)
        assert image.shape == (32, 32, 3) and image.std() > 20
    assert drawn(found["fluent-emoji-flat:blue-heart"])[16, 16].argmax() == 2
    assert drawn(found["noto:purple-circle"])[0, 0].tolist() == [255, 255, 255]
    assert (tmp_path / "images" / "heldout" / "animals & nature" / "noto_swan.png").is_file()
    assert "36 train and 13 heldout images; left out: 1 hidden, 4 other names of a drawing, 1 with a skin tone" in (
        capsys.readouterr().out
    )


def test_hidden_icons_and_mere_names_are_left_out_and_flipped_aliases_are_not(tmp_path):
    found = all_of(tmp_path / "images")
    assert not found.keys() & {"noto:0", "noto:a-button"} and "noto:a-button-blood-type" in found
    left, right = (found[f"fluent-emoji-flat:backhand-index-pointing-{side}"] for side in ("left", "right"))
    assert np.array_equal(drawn(left)[:, ::-1], drawn(right))
    # Only Unicode's name of it has the words "skin tone".
    assert "flexed-biceps-medium" in json.loads((FLUENT / "icons.json").read_text())["icons"]
    assert "fluent-emoji-flat:flexed-biceps-medium" not in found


def test_captions_and_groups_are_those_of_unicode(tmp_path):
    splits, groups = prepared(tmp_path / "images")
    found = splits["train"] | splits["heldout"]
    captions = {key: record.caption for key, record in found.items()}
    assert (
        captions["noto:swan"]
        == captions["fluent-emoji-flat:swan"]
        == ("swan, animal, bird, cygnet, duckling, ornithology, ugly")
    )
    # By its code points: the set's name is an older one.
    assert captions["fluent-emoji-flat:pouting-face"].startswith("enraged face, anger,")
    # The label contains "baby" and "chick" already.
    assert captions["fluent-emoji-flat:baby-chick"] == "baby chick, animal, bird, ornithology"
    assert captions["noto:eject-button"] == "eject button"
    # One that Unicode does not name as the set does.
    assert captions["noto:letter-c"] == "letter c"
    first, second = "activities, animals & nature, food & drink, objects", "people & body, smileys & emotion, symbols"
    assert ", ".join(groups) == f"{first}, {second}, travel & places"
    in_group = {key: groups[record.label] for key, record in found.items()}
    assert in_group["noto:swan"] == in_group["fluent-emoji-flat:swan"] == "animals & nature"
    assert in_group["noto:letter-c"] == "symbols"


HELD_OUT = {
    ("key", 0.2): "fluent-emoji-flat:ab-button-blood-type fluent-emoji-flat:blue-heart fluent-emoji-flat:level-slider"
    " fluent-emoji-flat:disappointed-face fluent-emoji-flat:front-facing-baby-chick fluent-emoji-flat:high-heeled-shoe"
    " fluent-emoji-flat:grinning-face-with-smiling-eyes fluent-emoji-flat:nine-oclock fluent-emoji-flat:on-arrow"
    " fluent-emoji-flat:relieved-face fluent-emoji-flat:swan noto:a-button-blood-type noto:swan",
    ("name", 0.3): "fluent-emoji-flat:ab-button-blood-type fluent-emoji-flat:backhand-index-pointing-left noto:minus"
    " fluent-emoji-flat:blue-heart fluent-emoji-flat:camera fluent-emoji-flat:cl-button fluent-emoji-flat:level-slider"
    " fluent-emoji-flat:jack-o-lantern fluent-emoji-flat:nine-oclock fluent-emoji-flat:on-arrow noto:chart-increasing"
    " fluent-emoji-flat:snow-capped-mountain fluent-emoji-flat:two-hearts fluent-emoji-flat:water-wave"
    " noto:ab-button-blood-type noto:backhand-index-pointing-left",
}
"""Of the icons of both sets, as earlier versions of the experiments held them out."""


@pytest.mark.parametrize("by, share", HELD_OUT)
def test_a_share_is_held_out_by_key_or_by_the_name_of_the_thing(tmp_path, by, share):
    splits, _ = prepared(tmp_path / "images", by=by, heldout=share)
    assert (
        splits["heldout"].keys() == set(HELD_OUT[by, share].split())
        and len({**splits["train"], **splits["heldout"]}) == 49
    )
    shared = {record.caption for record in splits["heldout"].values()}
    assert bool(shared & {record.caption for record in splits["train"].values()}) == (by == "key")


def test_a_set_without_code_points_is_joined_by_those_of_another_set(tmp_path):
    """Sets name the same things alike, also where Unicode has changed its mind."""
    names = ("pouting-face", "minus", "own-thing", "other-thing", "third-thing", "flexed-biceps-dark")
    categories = {"People": ["own-thing", "minus"], "Audio / Video": ["other-thing"], "/../": ["third-thing"]}
    plain = one_set(tmp_path / "plain", {name: {"body": MARK} for name in names}, categories=categories)
    found = drawings_of(plain, FLUENT)
    assert found["set:pouting-face"].caption.startswith("enraged face")
    # Without code points anywhere, by the label; a tone's label has what the name leaves out.
    assert found["set:minus"].caption.startswith("minus") and found["set:minus"].group == "symbols"
    assert "set:flexed-biceps-dark" not in found
    groups = [found[f"set:{name}-thing"].group for name in ("own", "other", "third")]
    assert groups == ["people & body", "audio - video", "-..-"]
    (plain / "icons.json").write_text(json.dumps({"prefix": "set", "icons": {"own-thing": {"body": MARK}}}))
    assert drawings_of(plain)["set:own-thing"].group == "other"
    assert drawings_of(plain)["set:own-thing"].caption == "own thing"


@pytest.mark.parametrize(
    "own, alias, expected",
    [
        ({}, {"hFlip": True}, ["AB", ".B"]),
        ({}, {"vFlip": True}, ["B.", "AB"]),
        ({}, {"rotate": 1}, ["BA", ".B"]),
        ({}, {"rotate": 2}, [".B", "BA"]),
        ({}, {"rotate": 3}, ["A.", "BB"]),
        ({}, {"hFlip": True, "rotate": 1}, [".A", "BB"]),
        ({"rotate": 3}, {"rotate": 3}, [".B", "BA"]),
        ({"hFlip": True}, {"hFlip": True, "vFlip": True}, ["B.", "AB"]),
        ({"rotate": 1}, {"left": 0}, ["BA", ".B"]),
    ],
    ids=str,
)
def test_an_alias_adds_its_flips_and_turns_to_those_of_its_parent(tmp_path, own, alias, expected):
    aliases = {"middle": {"parent": "mark"}, "turned": {"parent": "middle"} | alias}
    folder = one_set(tmp_path / "set", {"mark": {"body": MARK} | own}, aliases=aliases, width=2, height=2)
    found = drawings_of(folder)
    assert found.keys() == {"set:mark", "set:turned"}
    image = np.asarray(found["set:turned"].render(2))[..., 0]
    assert (image == 0).tolist() == [[letter != "." for letter in line] for line in expected]


def two(**content):
    """A set of two icons, and what is wrong in it."""
    icons = {name: {"body": MARK} for name in ("a", "b")} | content.pop("icons", {})
    return json.dumps({"prefix": "set", "icons": icons} | content)


WRONG = {
    "no JSON": ("icons.json", "{", "icons.json: cannot be read as JSON"),
    "a list": ("icons.json", "[]", "icons.json: not valid"),
    "no icons": ("icons.json", '{"prefix": "set"}', "icons.json: not valid .KeyError: 'icons'"),
    "icons in a list": ("icons.json", '{"prefix": "set", "icons": ["x", 3]}', "icons.json: not valid"),
    "aliases in a list": ("icons.json", two(aliases=["x"]), "icons.json: not valid"),
    "a number": ("icons.json", two(icons={"x": 3}), "icons.json: icon x: not valid"),
    "a path": ("icons.json", two(icons={"../x": {"body": ""}}), "icon ../x: not valid .ValueError: set:../x has other"),
    "a path of a set": ("icons.json", two(prefix="/tmp/x"), "icon a: not valid .ValueError: /tmp/x:a has other char"),
    "no parent": (
        "icons.json",
        two(aliases={"x": {"parent": "y", "rotate": 1}}),
        "icons.json: icon x: not valid .KeyError: 'y'",
    ),
    "a circle": (
        "icons.json",
        two(aliases={"x": {"parent": "y", "rotate": 1}, "y": {"parent": "x"}}),
        "icons.json: icon x: not valid .ValueError: an alias of itself, x of y of x",
    ),
    "no body": ("icons.json", two(icons={"x": {}}), "icon set:x: not valid .KeyError: 'body'"),
    "a body of no text": ("icons.json", two(icons={"x": {"body": 3}}), "icon set:x: not valid .TypeError"),
    "no width": ("icons.json", two(icons={"x": {"body": "", "width": "a"}}), "icon set:x: not valid .ValueError"),
    "an open tag": ("icons.json", two(icons={"x": {"body": "<path"}}), "icon set:x: not valid"),
    "a closed tag": ("icons.json", two(icons={"x": {"body": "</g>"}}), "icon set:x: not valid"),
    "an entity": ("icons.json", two(icons={"x": {"body": "&nothing;"}}), "icon set:x: not valid"),
    "all hidden": ("icons.json", two(icons={"b": {"body": "", "hidden": True}}), "--heldout 0.5: one split has all 1 "),
    "a group": ("icons.json", two(categories={"Own": ["b"]}), "all drawings of the group own are held out"),
    "categories in a list": ("metadata.json", '{"categories": ["x"]}', "set: categories: not valid"),
    "codes in a list": ("chars.json", "[1]", "chars.json: not valid"),
    "no licence": ("info.json", '{"name": "x"}', "info.json: not valid .KeyError: 'license'"),
}


@pytest.mark.parametrize("file, text, message", WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_a_set_is_named_and_nothing_is_written(tmp_path, monkeypatch, file, text, message):
    folder = one_set(tmp_path / "set", {name: {"body": MARK} for name in ("a", "b")})
    (folder / file).write_text(text)
    monkeypatch.setattr(script, "is_heldout", lambda key, share: key == "b")
    with pytest.raises(UserError, match=message) as caught:
        script.prepare(tmp_path / "images", TABLE, (folder,), 0.5, "name", 8)
    assert "\n" not in str(caught.value) and {path.name for path in tmp_path.iterdir()} == {"set"}


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """An experiment whose images are prepared from packages in a folder."""
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path / "cache"))

    def pack(package, folder):
        content = {path: folder / Path(path).name for path in package.files}
        members = {path: file.read_bytes() if file.is_file() else b"{}" for path, file in content.items()}
        return packed(tmp_path / "downloads", package, members)

    sets, table = (pack(script.SETS[3], FLUENT), pack(script.SETS[0], NOTO)), pack(script.TABLE, TABLE)
    monkeypatch.setattr(script, "SETS", sets)
    monkeypatch.setattr(script, "EMOJI", replace(script.EMOJI, packages=(*sets, table)))
    monkeypatch.setattr(script, "NAMES", replace(script.NAMES, packages=(table,)))
    source = {"name": "image_folder", "folder": "$HPCDDM_CACHE/emoji"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed(EXPERIMENT, data__source=source, data__channels=3)))
    return tmp_path / "mine.yaml"


def command(*words):
    return CliRunner().invoke(script.main, [str(word) for word in words])


def test_the_command_fetches_proves_and_draws_and_a_second_one_finds_it(experiment, tmp_path):
    images, downloads = tmp_path / "cache" / "emoji", tmp_path / "downloads"
    done = command(experiment, "--from", downloads, "--heldout", 0.2)
    assert done.exit_code == 0 and done.output.count("fetched  ") == 3, (done.output, done.exception)
    assert f"drawn    {images}" in done.output and "needs no pretrained weights" in done.output
    assert {path.name for path in images.parent.iterdir()} == {"downloads", "emoji"}
    assert images.stat().st_mode == (tmp_path / "downloads").stat().st_mode
    attribution = (images / "ATTRIBUTION.md").read_text()
    assert "Noto Emoji by Google Inc, Apache 2.0 https://github.com/googlefonts/noto-emoji" in attribution
    assert "Changed: drawn on white, 64 x 64 pixels; 0.2 of all held out, by name." in attribution
    fetched = (script.EMOJI.place() / "ATTRIBUTION.md").read_text()
    assert "| noto | Google LLC | [Apache-2.0]" in fetched
    done = command(experiment, "--from", tmp_path, "--heldout", 0.2)
    assert done.exit_code == 0 and f"present  {images}" in done.output and "drawn" not in done.output


def test_a_folder_of_other_images_is_not_touched(experiment, tmp_path):
    keys = experiment, "--from", tmp_path / "downloads", f"data.source.folder={tmp_path / 'x'}", "data.image_size=96"
    assert command(*keys, "--heldout", 0.2).exit_code == 0
    before = (tmp_path / "x" / "train" / "captions.csv").read_bytes()
    assert records_of("image_folder", folder=str(tmp_path / "x"))[0].image.size == (96, 96)
    other = [("--heldout", 0.3), ("--heldout", 0.2, "--by", "key"), ("--heldout", 0.2, "--set", NOTO)]
    for words in other:
        done = command(*keys, *words)
        assert done.exit_code == 1 and f"{tmp_path / 'x'}: has other images; remove it" in str(done.exception)
    assert (tmp_path / "x" / "train" / "captions.csv").read_bytes() == before
    (tmp_path / "empty").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.jpg").write_bytes(b"mine")
    for name, code in (("empty", 0), ("mine", 1)):
        words = experiment, "--from", tmp_path / "downloads", f"data.source.folder={tmp_path / name}", "--heldout", 0.2
        assert command(*words).exit_code == code
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["photo.jpg"]


def test_what_cannot_be_prepared_is_refused_in_one_line(experiment, tmp_path, monkeypatch):
    done = command("quickstart")
    assert "quickstart: data.source is idx, and not an image_folder" in str(done.exception)
    done = command(experiment, "--from", tmp_path)
    assert "missing (3 of 3 archives are)" in str(done.exception)
    (tmp_path / "file").write_text("")
    done = command(experiment, "--from", tmp_path / "downloads", f"data.source.folder={tmp_path / 'file' / 'x'}")
    assert f"{tmp_path / 'file' / 'x'}: cannot write there: " in str(done.exception)
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = command(experiment)
    assert "resvg-py draws the icons; install it with: pip install resvg-py" in str(done.exception)
