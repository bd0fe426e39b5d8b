import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddm.evaluation.concepts.tokenise import is_word, name_of, segments, tokens


@pytest.mark.parametrize(
    "caption, expected",
    [
        ("A fire engine, red", [("a", "fire", "engine"), ("red",)]),
        ("a fire-engine", [("a", "fire", "engine")]),
        ("fire_engine.jpg", [("fire", "engine"), ("jpg",)]),
        *((two, [("fire",), ("engine",)]) for two in ("Fire - engine", "fire -- engine", "-fire- engine")),
        ("fire -engine", [("fire",), ("engine",)]),
        ("fire/engine; (red) engine: 3d", [("fire",), ("engine",), ("red",), ("engine",), ("3d",)]),
        ("a man's shoe and the dogs' bowls", [("a", "man", "shoe", "and", "the", "dogs", "bowls")]),
        ("a woman\u2019s t-shirt", [("a", "woman", "t", "shirt")]),
        ("five o'clock", [("five", "o'clock")]),
        ("cafe\u0301 caf\xc9", [("caf\xe9", "caf\xe9")]),
        ("\u6c34 H\u2082O", [("\u6c34", "h\u2082o")]),
        ("dog\udcff\udcfecat", [("dog",), ("cat",)]),
        ("red\n\tdog\xa0cat", [("red", "dog", "cat")]),
        ("", []),
        (" ,;-_' ", []),
    ],
)
def test_segments_end_at_marks_and_not_at_hyphens_inside_words(caption, expected):
    assert segments(caption) == expected


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(), max_size=40))
def test_any_text_becomes_words_and_single_marks(caption):
    for token in tokens(caption):
        assert token and (is_word(token) or len(token) == 1) and not any(character.isspace() for character in token)
    assert [word for segment in segments(caption) for word in segment] == [t for t in tokens(caption) if is_word(t)]


def test_a_name_is_one_segment():
    assert name_of("  Fire  Engine\n") == "fire engine"
    for text in ("", "cat, dog", "!?", "\udcff"):
        with pytest.raises(ValueError, match="is not a word, nor words separated by spaces"):
            name_of(text)
