"""Matching: which concepts of a vocabulary a caption names."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int64

from hpcddm.evaluation.concepts.tokenise import tokens
from hpcddm.evaluation.concepts.vocabulary import Vocabulary

Lemmas = list[str | None]


class _Compound(NamedTuple):
    """A concept of several words, at the first of them in a phrase, or at its rarest in a bag."""

    others: list[str]
    number: int


class Matcher:
    """Finds the concepts of captions; words of both count by their lemmas.

    mode: 'phrase' finds a concept whose words follow one another, with no mark between them; 'bag' one whose words all
    stand somewhere in the caption (arXiv 2404.04125, sec. 3.1, and its code, which however passes over a word that no
    caption has: here such a concept is in no caption). A concept inside another counts, too: 'fire' in 'fire engine'.
    """

    def __init__(self, vocabulary: Vocabulary, mode: Literal["phrase", "bag"]) -> None:
        lemmas = vocabulary.lemmas
        names = [[lemmas.get(word, word) for word in tokens(concept.name)] for concept in vocabulary.concepts]
        self._single: defaultdict[str, list[int]] = defaultdict(list)
        self._longer: defaultdict[str, list[_Compound]] = defaultdict(list)
        uses = Counter(word for words in names for word in set(words))
        for number, words in enumerate(names):
            if mode == "bag":
                words = sorted(set(words), key=lambda word: (uses[word], word))
            first, *others = words
            if others:
                self._longer[first].append(_Compound(others, number))
            else:
                self._single[first].append(number)
        self._lemma_of = {word: word for words in names for word in words}
        self._lemma_of |= {word: lemma for word, lemma in lemmas.items() if lemma in self._lemma_of}
        self._find_longer = self._phrases if mode == "phrase" else self._bags

    def match(self, captions: Sequence[str]) -> list[Int64[np.ndarray, " _"]]:
        """Return the numbers of every caption's concepts, ascending, without repetition."""
        numbers: list[int] = []
        ends = [0]
        for caption in captions:
            numbers += self._numbers(tokens(caption))
            ends.append(len(numbers))
        merged = np.array(numbers, np.int64)
        return [merged[start:end] for start, end in zip(ends, ends[1:], strict=False)]

    def _numbers(self, words: list[str]) -> list[int]:
        # None for marks, and for words that no concept has.
        lemmas = list(map(self._lemma_of.get, words))
        known = set(filter(None, lemmas))
        numbers = {number for lemma in known & self._single.keys() for number in self._single[lemma]}
        first = known & self._longer.keys()
        if first:
            numbers.update(self._find_longer(lemmas, known, first))
        return sorted(numbers)

    def _phrases(self, lemmas: Lemmas, known: set[str], first: set[str]) -> Iterator[int]:
        for place, lemma in enumerate(lemmas, 1):
            if lemma in first:
                for others, number in self._longer[str(lemma)]:
                    if lemmas[place : place + len(others)] == others:
                        yield number

    def _bags(self, lemmas: Lemmas, known: set[str], first: set[str]) -> Iterator[int]:
        for lemma in first:
            for others, number in self._longer[lemma]:
                if known.issuperset(others):
                    yield number
