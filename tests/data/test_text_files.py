"""Texts of any editor: marks and line ends of Windows are part of no caption, no class and no key."""

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hpcddm.data import sample_keys
from hpcddm.data.existing_tars import index_existing_tar
from hpcddm.data.record import Record
from hpcddm.data.tar_layout import TarLayout, ValueLocation
from hpcddm.data.text_files import BYTE_ORDER_MARK, decode, normalise
from hpcddm.errors import UserError
from tests.data.test_existing_tars import encoded, written

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32"]
TEXTS = {
    "a cat": "a cat",
    f"{BYTE_ORDER_MARK}a cat": "a cat",
    f"{BYTE_ORDER_MARK}{BYTE_ORDER_MARK}a {BYTE_ORDER_MARK}cat": "a cat",
    "a cat\r\n": "a cat",
    "a cat\n": "a cat",
    "a cat\r": "a cat",
    "a cat\r\n\r\n": "a cat",
    "two\r\nlines\rand one": "two\nlines\nand one",
    " a cat \u2028": " a cat \u2028",
}


@pytest.mark.parametrize("text, expected", TEXTS.items(), ids=ascii)
def test_marks_and_line_ends_are_taken_off(text, expected):
    assert normalise(text) == expected == normalise(expected)
    for encoding in ENCODINGS:
        assert decode(text.encode(encoding)) == expected
    assert Record("k", Image.new("L", (1, 1)), caption=text).caption == expected


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from(f"ab \r\n{BYTE_ORDER_MARK}\u00e9\U0001f408")), st.sampled_from(ENCODINGS))
def test_whatever_the_encoding_a_text_has_its_own_characters_and_no_others(text, encoding):
    result = decode(text.encode(encoding))
    assert BYTE_ORDER_MARK not in result and "\r" not in result and not result.endswith("\n")
    assert re.sub(r"\s", "", result) == re.sub(rf"[\s{BYTE_ORDER_MARK}]", "", text)


@pytest.mark.parametrize("content", ["a cat".encode("utf-16-le"), "a cat".encode("utf-16-be"), b"a\0cat"])
def test_utf_16_without_its_mark_is_refused(content):
    with pytest.raises(ValueError, match="zero bytes, as in UTF-16 without its mark; save it as UTF-8"):
        decode(content)


def test_captions_and_classes_in_tars_are_the_same_whatever_wrote_them(tmp_path):
    places = [(TarLayout(), lambda text, label: [("txt", text), ("cls", label)])]
    entries = TarLayout(label=ValueLocation("json", "class"), caption=ValueLocation("json", "caption"))
    places.append((entries, lambda text, label: [("json", as_json(text, label))]))
    for number, (layout, members_of) in enumerate(places):
        texts = [
            text.encode(encoding)
            for text in ("a cat", "a cat\r\n", f"{BYTE_ORDER_MARK}a cat")
            for encoding in ENCODINGS
        ]
        labels = itertools.cycle(f"7{end}".encode(encoding) for end in ("", "\r\n") for encoding in ENCODINGS)
        members = []
        for place, (text, label) in enumerate(zip(texts, labels, strict=False)):
            members.append((f"{place:02d}.png", encoded()))
            members += [(f"{place:02d}.{extension}", content) for extension, content in members_of(text, label)]
        adopted = index_existing_tar(written(tmp_path / f"{number}.tar", members), layout)
        assert adopted.broken == [] and len(adopted.index.keys) == len(texts) == 12
        assert set(adopted.index.captions) == {"a cat"} and set(adopted.index.labels.tolist()) == {7}


def as_json(text, label):
    """A JSON object in the encoding of its caption, with a mark where that has one."""
    encoding = next(name for name in ("utf-32", "utf-16", "utf-8-sig") if decodes(text, name))
    values = {"caption": text.decode(encoding), "class": f"{BYTE_ORDER_MARK}{decode(label)}\r\n"}
    return json.dumps(values, ensure_ascii=False).encode(encoding)


def decodes(content, encoding):
    try:
        return "cat" in content.decode(encoding)
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("content, reason", [("a cat".encode("utf-16-le"), "its txt has zero bytes, as in UTF-16")])
def test_a_caption_whose_encoding_is_unknown_is_broken(tmp_path, content, reason):
    adopted = index_existing_tar(written(tmp_path / "x.tar", [("a.png", encoded()), ("a.txt", content)]), TarLayout())
    assert adopted.index.keys == [] and len(adopted.broken) == 1
    assert adopted.broken[0][1].startswith(reason)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_lists_of_keys_are_read_from_any_editor(tmp_path, encoding, end):
    path = tmp_path / "list.txt"
    path.write_bytes(f"cat{end}dog{end}".encode(encoding))
    assert list(sample_keys.read(path)) == ["cat", "dog"]


def test_a_list_in_an_unknown_encoding_is_refused_by_name(tmp_path):
    path = tmp_path / "list.txt"
    path.write_bytes("cat\n".encode("utf-16-le"))
    with pytest.raises(UserError, match="list.txt: keys of samples cannot be read .zero bytes, as in UTF-16"):
        sample_keys.read(path)
