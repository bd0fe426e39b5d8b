"""Matching against a naive matcher that follows the definitions word by word."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddm.evaluation.concepts.matching import Matcher
from hpcddm.evaluation.concepts.tokenise import segments
from hpcddm.evaluation.concepts.vocabulary import Concept, Vocabulary

WORDS = ["fire", "engine", "engines", "dog", "dogs", "hot", "a", "red", "caf\xe9", "o'clock", "3d"]
LEMMAS = {"engines": "engine", "dogs": "dog", "leaves": "leaf"}
names = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
some = st.sampled_from([*WORDS, "Fire", ",", "-", "fire-engine", "\udcff", "dog's", "zebra"])
captions = st.lists(st.one_of(some, st.text(max_size=3)), max_size=12).map(" ".join)


def vocabulary_of(*given_names):
    return Vocabulary([Concept(name) for name in given_names], LEMMAS)


def matched(given_names, mode, *texts):
    """Names of the concepts of each text."""
    vocabulary = vocabulary_of(*given_names)
    rows = Matcher(vocabulary, mode).match(texts)
    return [[vocabulary.concepts[number].name for number in row] for row in rows]


def naive(vocabulary, mode, caption):
    lemmas = [[LEMMAS.get(word, word) for word in segment] for segment in segments(caption)]
    numbers = []
    for number, concept in enumerate(vocabulary.concepts):
        words = [LEMMAS.get(word, word) for word in concept.words]
        if mode == "bag":
            found = set(words) <= {word for segment in lemmas for word in segment}
        else:
            starts = [segment[place:] for segment in lemmas for place in range(len(segment))]
            found = any(start[: len(words)] == words for start in starts)
        numbers += [number] * found
    return numbers


@pytest.mark.parametrize("mode", ["phrase", "bag"])
@settings(max_examples=150, deadline=None)
@given(st.lists(names, unique=True, max_size=30), st.lists(captions, max_size=6))
def test_it_agrees_with_the_naive_matcher(mode, concepts, texts):
    vocabulary = vocabulary_of(*concepts)
    rows = Matcher(vocabulary, mode).match(texts)
    assert [row.tolist() for row in rows] == [naive(vocabulary, mode, text) for text in texts]
    assert all(row.dtype == np.int64 for row in rows)


CONCEPTS = ["dog", "engine", "fire", "fire engine", "hot dog", "leaf", "red fire engine"]


def test_words_of_a_phrase_follow_one_another_and_those_of_a_bag_stand_anywhere():
    texts = ["Two red fire-engines!", "fire, engine", "engine fire", "a hot, hot dog", "leaves", "", "unicorn"]
    found = [", ".join(row) for row in matched(CONCEPTS, "phrase", *texts)]
    assert found == [
        "engine, fire, fire engine, red fire engine", "engine, fire", "engine, fire", "dog, hot dog", "leaf", "", "",
    ]  # fmt: skip
    texts = ["engines on fire", "dogs in the hot sun", "hot"]
    assert matched(CONCEPTS, "bag", *texts) == [["engine", "fire", "fire engine"], ["dog", "hot dog"], []]


def test_names_with_other_forms_match_alike():
    # A name need not be made of lemmas, as that of a class; and two concepts may be matched by the same words.
    found = matched(["Dogs", "dog", "Fire-Engines", "unheard dog"], "phrase", "a dog", "fire engine")
    assert found == [["Dogs", "dog"], ["Fire-Engines"]]
