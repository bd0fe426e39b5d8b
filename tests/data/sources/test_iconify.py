import json
import sys
from pathlib import Path

import numpy as np
import pytest

from hpcddm.config import Experiment
from hpcddm.data.sources.base import SPLITS
from hpcddm.data.sources.settings import SourceSettings
from hpcddm.data.sources.shares import is_heldout
from hpcddm.errors import ConfigError, UserError
from hpcddm.schema import hashed, validate
from tests.data.sources.opening import records_of, source, split_of
from tests.helpers import tiny

ICONS = Path(__file__).parents[2] / "fixtures" / "icons"
FLUENT, NOTO = str(ICONS / "icons.json"), str(ICONS / "noto.json")
BOTH = {"files": [FLUENT, NOTO], "heldout": {"share": 0.2}}
NAMED = BOTH | {"emojibase": str(ICONS / "emojibase")}
MARK = '<path fill="#000" d="M0 0h2v1h-1v1h-1z"/>'
"""Two pixels of the first line, and the first of the second: no two turns and flips of it are alike."""


def all_of(**keys):
    """Read the icons of both splits by their keys."""
    records = [record for split in ("train", "heldout") for record in records_of("iconify", split, **keys)]
    return {record.key: record for record in records}


def drawn(record):
    return np.asarray(record.image).astype(int)


def one_set(tmp_path, icons, **content):
    """Write a set and open it: all but a few of its icons are in the training split."""
    (tmp_path / "set.json").write_text(json.dumps({"prefix": "set", "icons": icons} | content))
    return {"files": [str(tmp_path / "set.json")], "heldout": {"share": 1e-9}}


def test_every_icon_is_drawn_in_its_size_on_white_with_its_name_as_caption():
    found = all_of(**BOTH, size=32)
    assert len(found) == 37 + 13 and found["noto:swan"].caption == found["fluent-emoji-flat:swan"].caption == "swan"
    assert found["fluent-emoji-flat:1st-place-medal"].caption == "1st place medal"
    for record in found.values():
        image = drawn(record)
        assert image.shape == (32, 32, 3) and image.std() > 20 and record.label is None
    assert drawn(found["fluent-emoji-flat:blue-heart"])[16, 16].argmax() == 2
    assert drawn(found["noto:purple-circle"])[0, 0].tolist() == [255, 255, 255]


def test_hidden_icons_and_mere_names_are_left_out_and_flipped_aliases_are_not():
    found = all_of(**BOTH, size=32)
    assert "noto:0" not in found and "noto:a-button" not in found and "noto:a-button-blood-type" in found
    left, right = (found[f"fluent-emoji-flat:backhand-index-pointing-{side}"] for side in ("left", "right"))
    assert np.array_equal(drawn(left)[:, ::-1], drawn(right)) and right.caption == "backhand index pointing right"


def test_a_share_is_held_out_by_key():
    held, train = (split_of("iconify", split, **BOTH) for split in ("heldout", "train"))
    assert 0 < len(held) < len(train) and len(held) + len(train) == 50 and held.has_captions
    keys = [
        f"{icons.prefix}:{icon.name}" for icons, icon in ((drawing.icons, drawing.icon) for drawing in held.drawings)
    ]
    assert keys == [held[number].key for number in range(len(held))] and all(is_heldout(key, 0.2) for key in keys)


def test_captions_and_classes_name_set_and_category():
    keys = BOTH | {"caption": "a {set} emoji of {name}, {category}", "classes": "category"}
    found = all_of(**keys)
    assert found["fluent-emoji-flat:blue-heart"].caption == "a fluent emoji flat emoji of blue heart, Smileys & Emotion"
    assert found["noto:swan"].caption == "a noto emoji of swan, Animals & Nature"
    # An alias is in the category of its parent.
    assert found["fluent-emoji-flat:backhand-index-pointing-right"].caption.endswith(", People & Body")
    names = [split_of("iconify", split, **keys).class_names for split in ("train", "heldout")]
    assert names[0] == names[1] and names[0] == sorted(names[0]) and len(names[0]) == 8
    assert all(record.caption.endswith(f", {names[0][record.label]}") for record in found.values())
    sets = split_of("iconify", **BOTH, classes="set")
    assert sets.class_names == ["fluent-emoji-flat", "noto"] and set(sets.labels.tolist()) == {0, 1}


def test_patterns_skip_icons_by_name():
    found = all_of(**BOTH, skip=["*-button*", "swan"])
    assert len(found) == 50 - 7 - 2 and not any("button" in key or "swan" in key for key in found)


def test_captions_have_the_names_keywords_and_groups_of_unicode():
    found = all_of(**NAMED, caption="a {set} emoji of {label}, {tags}", classes="group")
    assert found["noto:swan"].caption == "a noto emoji of swan, animal, bird, cygnet, duckling, ornithology, ugly"
    # By its code points: the set's name is an older one.
    assert found["fluent-emoji-flat:pouting-face"].caption.startswith(
        "a fluent emoji flat emoji of enraged face, anger,"
    )
    # The label says "baby" and "chick" already.
    assert found["fluent-emoji-flat:baby-chick"].caption.endswith("of baby chick, animal, bird, ornithology")
    assert found["noto:eject-button"].caption == "a noto emoji of eject button"
    # One that Unicode does not name as the set does.
    assert found["noto:letter-c"].caption == "a noto emoji of letter c"
    names = split_of("iconify", **NAMED, classes="group").class_names
    groups = {key: names[record.label] for key, record in found.items()}
    assert groups["noto:swan"] == groups["fluent-emoji-flat:swan"] == "animals & nature" and len(names) == 8
    assert groups["noto:letter-c"] == "symbols"


def test_patterns_skip_icons_by_the_name_of_unicode_too():
    left_out = all_of(**NAMED).keys() - all_of(**NAMED, skip=["*skin-tone*"]).keys()
    assert left_out == {"fluent-emoji-flat:flexed-biceps-medium"}


@pytest.mark.parametrize("tables", [{}, {"emojibase": str(ICONS / "emojibase")}], ids=["own names", "Unicode's names"])
def test_all_drawings_of_a_name_are_held_out_together(tables):
    keys = BOTH | tables | {"heldout": {"share": 0.3, "by": "name"}}
    held, train = ([drawing.concept for drawing in split_of("iconify", split, **keys).drawings] for split in SPLITS)
    assert held and train and not set(held) & set(train) and len(held) + len(train) == 50
    shared = {"swan", "keycap-5", "backhand-index-pointing-left", "backhand-index-pointing-right"}
    assert all(held.count(name) + train.count(name) == 2 for name in shared)
    by_key = split_of("iconify", "heldout", **keys | {"heldout": {"share": 0.3}})
    assert {drawing.concept for drawing in by_key.drawings} & {
        drawing.concept for drawing in split_of("iconify", **keys).drawings
    }


def test_a_set_without_code_points_is_joined_by_those_of_another_set(tmp_path):
    """Sets name the same things alike, also where Unicode has changed its mind."""
    (tmp_path / "plain").mkdir()
    icons = {name: {"body": MARK} for name in ("pouting-face", "minus", "own-thing", "flexed-biceps-dark")}
    (tmp_path / "plain" / "icons.json").write_text(
        json.dumps({"prefix": "plain", "icons": icons, "categories": {"People": ["own-thing", "minus"]}})
    )
    keys = NAMED | {"files": [str(tmp_path / "plain" / "icons.json"), FLUENT]}
    found = {drawing.key: drawing for split in SPLITS for drawing in split_of("iconify", split, **keys).drawings}
    assert found["plain:pouting-face"].emoji.label == "enraged face"
    # Without code points anywhere, by the label; a tone's label says what the name leaves out.
    assert found["plain:minus"].emoji.label == "minus" and found["plain:minus"].group == "symbols"
    biceps = found["plain:flexed-biceps-dark"]
    assert (biceps.emoji.label, biceps.concept) == ("flexed biceps: dark skin tone", "flexed-biceps")
    assert found["plain:own-thing"].emoji is None and found["plain:own-thing"].group == "people & body"


def test_wrong_and_missing_tables_are_named(tmp_path):
    keys = NAMED | {"emojibase": str(tmp_path)}
    with pytest.raises(UserError, match="emojibase: .*/data.json is missing; 'hpcddm prefetch emoji' fetches it"):
        split_of("iconify", **keys)
    (tmp_path / "messages.json").write_text('{"groups": []}')
    for text, message in {"{": "no readable JSON", '[{"label": "x"}]': "no tables of emojibase-data .KeyError"}.items():
        (tmp_path / "data.json").write_text(text)
        with pytest.raises(UserError, match=message):
            split_of("iconify", **keys)


@pytest.mark.parametrize("own", [{"caption": "{label}"}, {"caption": "{name}, {tags}"}, {"classes": "group"}], ids=str)
def test_names_of_unicode_need_their_tables(tmp_path, own):
    with pytest.raises(ConfigError, match="data.source.emojibase: this key is needed: caption or classes name"):
        tiny(tmp_path, data__source={"name": "iconify"} | BOTH | own)


def test_content_covers_the_tables_and_code_points_and_a_run_without_them_stays(tmp_path):
    keys = one_set(tmp_path, {"mark": {"body": MARK}})
    (tmp_path / "chars.json").write_text("{}")
    plain = source("iconify", **keys).content()
    keys |= {"emojibase": str(ICONS / "emojibase")}
    named = source("iconify", **keys).content()
    (tmp_path / "chars.json").write_text('{"1f9a2": "mark"}')
    assert len({plain, named, source("iconify", **keys).content()}) == 3
    settings = SourceSettings.model_validate({"name": "iconify"} | BOTH)
    assert hashed(settings)["heldout"] == {"share": 0.2} and "emojibase" not in hashed(settings)
    del keys["emojibase"]
    assert source("iconify", **keys).content() == plain


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
    keys = one_set(tmp_path, {"mark": {"body": MARK} | own}, aliases=aliases, width=2, height=2)
    records = {record.key: drawn(record)[..., 0] for record in records_of("iconify", **keys, size=2)}
    assert records.keys() == {"set:mark", "set:turned"}
    assert (records["set:turned"] == 0).tolist() == [[letter != "." for letter in line] for line in expected]


def test_a_box_that_is_no_square_stands_whole_in_the_middle(tmp_path):
    icons = {"wide": {"body": '<path d="M8 4h8v4h-8z"/>', "left": 8, "top": 4, "width": 8, "height": 4}}
    (record,) = records_of("iconify", **one_set(tmp_path, icons), size=8)
    assert (drawn(record)[..., 0] == 0).tolist() == [[2 <= line < 6] * 8 for line in range(8)]


def test_content_is_that_of_the_files_and_their_categories(tmp_path):
    keys = one_set(tmp_path, {"mark": {"body": MARK}})
    contents = [source("iconify", **keys).content()]
    (tmp_path / "metadata.json").write_text('{"categories": {"Marks": ["mark"]}}')
    contents.append(source("iconify", **keys).content())
    one_set(tmp_path, {"mark": {"body": MARK[:-1]}})
    assert len({*contents, source("iconify", **keys).content()}) == 3
    contents = [source("iconify", **BOTH | {"files": files}).content() for files in ([FLUENT], [NOTO], [FLUENT, NOTO])]
    assert len(set(contents)) == 3


WRONG = {
    "no JSON": ("{", "set.json: no readable JSON"),
    "a list": ("[]", "set.json: no icons in Iconify JSON, which have `prefix` and `icons`"),
    "no icons": ('{"prefix": "set"}', "set.json: no icons in Iconify JSON"),
    "no body": ('{"prefix": "set", "icons": {"x": {}}}', "set.json: icon x: no valid one .KeyError: 'body'"),
    "a number": ('{"prefix": "set", "icons": {"x": 3}}', "set.json: icon x: no valid one"),
    "no width": ('{"prefix": "set", "icons": {"x": {"body": "", "width": "a"}}}', "set.json: icon x: no valid one"),
    "no parent": (
        '{"prefix": "set", "icons": {}, "aliases": {"x": {"parent": "y", "rotate": 1}}}',
        "set.json: icon x: no valid one .KeyError: 'y'",
    ),
    "a circle": (
        '{"prefix": "s", "icons": {}, "aliases": {"x": {"parent": "y", "rotate": 1}, "y": {"parent": "x"}}}',
        "set.json: icon x: no valid one .ValueError: an alias of itself, x of y of x",
    ),
    "all hidden": ('{"prefix": "s", "icons": {"x": {"body": "", "hidden": true}}}', "0 icons, none of them for train"),
}


@pytest.mark.parametrize("text, message", WRONG.values(), ids=WRONG)
def test_a_wrong_set_is_named_with_its_icon(tmp_path, text, message):
    keys = one_set(tmp_path, {})
    (tmp_path / "set.json").write_text(text)
    with pytest.raises(UserError, match=message):
        split_of("iconify", **keys)


@pytest.mark.parametrize("body", ["<path", "</g>", "&nothing;"])
def test_an_icon_that_cannot_be_drawn_is_named(tmp_path, body):
    records = split_of("iconify", **one_set(tmp_path, {"bad": {"body": body}, "good": {"body": MARK}}))
    records[1]
    with pytest.raises(UserError, match=r"set.json: icon bad cannot be drawn \(.*\); name it in skip"):
        records[0]


def test_what_a_set_lacks_is_named(tmp_path):
    keys = one_set(tmp_path, {"mark": {"body": MARK}})
    with pytest.raises(UserError, match="icon mark has no category, which data.source.caption names"):
        split_of("iconify", **keys, caption="{name}, {category}")
    with pytest.raises(UserError, match="icon mark has no category, which data.source.classes names"):
        split_of("iconify", **keys, classes="category")
    with pytest.raises(UserError, match="data.source.files: .*/nowhere.json is no file; of a package it is icons.json"):
        split_of("iconify", **keys | {"files": [str(tmp_path / "nowhere.json")]})
    (tmp_path / "again.json").write_text((tmp_path / "set.json").read_text())
    with pytest.raises(UserError, match="set.json and .*/again.json are both the set set; remove one"):
        split_of("iconify", **keys | {"files": [*keys["files"], str(tmp_path / "again.json")]})
    with pytest.raises(UserError, match="set.json and .*/set.json are both the set set; remove one"):
        split_of("iconify", **keys | {"files": 2 * keys["files"]})


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UserError, match=r"needs the package resvg-py; .* pip install 'hpcddm\[collections\]'"):
        split_of("iconify", **BOTH)


@pytest.mark.parametrize("caption", ["{style}", "{name.__class__}", "{name!r}", "{name:>9}", "{", "{}", "{0}"])
def test_a_caption_of_other_words_is_refused(caption):
    with pytest.raises(ConfigError, match="caption: .*found"):
        validate(SourceSettings, {"name": "iconify", "caption": caption} | BOTH, "x.yaml")


def test_a_drawing_is_not_enlarged_and_paths_are_those_of_files(tmp_path):
    stored = {"name": "iconify", "files": ["a/icons.json", NOTO], "heldout": {"share": 0.1}, "size": 4}
    with pytest.raises(ConfigError, match="data.source.size: 4 is less than data.image_size 8"):
        tiny(tmp_path, data__source=stored)
    experiment: Experiment = tiny(tmp_path, data__source=stored | {"size": 8})
    assert experiment.data.source.files == [str(tmp_path / "a" / "icons.json"), NOTO]
