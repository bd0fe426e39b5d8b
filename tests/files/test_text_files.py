"""Texts of any editor: marks and line ends of Windows are part of no caption, no class and no key."""

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hpcddm.data.tars.record import Record
from hpcddm.data.tars.tar_layout import TarLayout, ValueLocation
from hpcddm.files.text_files import BYTE_ORDER_MARK, decode, normalise
from tests.data.oddities import encoded, index_existing_tar, write_tar

PNG = encoded(1)
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


def test_marks_and_line_ends_are_taken_off():
    for text, expected in TEXTS.items():
        assert normalise(text) == expected == normalise(expected)
        assert [decode(text.encode(encoding)) for encoding in ENCODINGS] == [expected] * 4
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
    beside, in_json = [], []
    for place, (encoding, text) in enumerate(itertools.product(ENCODINGS, ["a cat", "a cat\r\n", "\ufeffa cat"])):
        values = json.dumps({"caption": text, "class": "\ufeff7\r\n"}, ensure_ascii=False)
        picture, label = (f"{place:02d}.png", PNG), "7\r\n" if place % 2 else "7"
        beside += [picture, (f"{place:02d}.txt", text.encode(encoding)), (f"{place:02d}.cls", label.encode(encoding))]
        in_json += [picture, (f"{place:02d}.json", values.encode(encoding))]
    entries = TarLayout(label=ValueLocation("json", "class"), caption=ValueLocation("json", "caption"))
    for members, layout in ((beside, TarLayout()), (in_json, entries)):
        adopted = index_existing_tar(write_tar(tmp_path / "x.tar", members), layout)
        assert adopted.broken == [] and len(adopted.index.keys) == 12
        assert set(adopted.index.captions) == {"a cat"} and set(adopted.index.labels.tolist()) == {7}


def test_a_caption_whose_encoding_is_unknown_is_broken(tmp_path):
    path = write_tar(tmp_path / "x.tar", [("a.png", PNG), ("a.txt", "a cat".encode("utf-16-le"))])
    adopted = index_existing_tar(path, TarLayout())
    ((key, reason),) = adopted.broken
    assert adopted.index.keys == [] and key == "a" and reason.startswith("its txt has zero bytes, as in UTF-16")
