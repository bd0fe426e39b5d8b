"""Nouns of the captions themselves, of one word, or of two where WordNet knows them."""

import fnmatch
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import Field

from hpcddm.config.concepts import VocabularySettings
from hpcddm.config.schema import Positive
from hpcddm.errors import UserError
from hpcddm.evaluation.concepts import wordnet_nouns
from hpcddm.evaluation.concepts.nouns import NO_NOUN, NounTagger, require_hanta
from hpcddm.evaluation.concepts.vocabularies.base import VocabularySource
from hpcddm.evaluation.concepts.vocabulary import Candidates, Concept, Vocabulary

AT_ONCE = 1000
"""Captions between two calls of `advance`."""
STOP_CONCEPTS = ["skin", "skin tone", "tone"]
"""Words for the colours of people in emoji, which say nothing of a thing."""


class CaptionVocabularySettings(VocabularySettings):
    """Nouns that enough captions have, in English."""

    reads_captions: ClassVar[bool] = True
    downloads: ClassVar[tuple[str, ...]] = ("wordnet",)

    min_captions: Positive = 10
    """Captions that have a concept, at least."""
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the captions that have a concept, at most: more frequent nouns tell images apart too little."""
    exclude: list[str] = STOP_CONCEPTS
    """Concepts that are left out, by their names, or patterns such as '* face'."""
    wordnet_only: bool = False
    """True for concepts that WordNet has alone: no names of people or makers, and no misspelt words."""


class CaptionVocabulary(VocabularySource[CaptionVocabularySettings]):
    """Nouns by HanTa; a word is a noun everywhere where the captions have it as one in at least half of its places."""

    def __init__(self, settings: CaptionVocabularySettings) -> None:
        super().__init__(settings)
        require_hanta()
        self._wordnet = wordnet_nouns.load_wordnet()

    def candidates(self, captions: Sequence[str], advance: Callable[[int], None]) -> Candidates:
        """Collect the nouns, and count for each word the nouns that it is a form of, or none."""
        total = Candidates()
        for caption in captions:
            names: set[str] = set()
            for nouns in self._tagger.nouns(caption):
                names.update(nouns.names)
                total.forms.update(nouns.forms)
            total.counts.update(names)
            total.captions += 1
            if total.captions % AT_ONCE == 0:
                advance(total.captions)
        advance(total.captions)
        return total

    def vocabulary(self, candidates: Candidates, class_names: Sequence[str]) -> Vocabulary:
        """Choose the nouns; raises `UserError` where none has enough captions."""
        lemmas = _lemmas(candidates.forms)
        counts = _merge_by_lemmas(candidates.counts, lemmas)
        others = _lemmas_rarely_nouns(candidates.forms, lemmas)
        least, most = self.settings.min_captions, self.settings.max_share * candidates.captions
        names = [name for name, count in sorted(counts.items()) if least <= count <= most]
        names = [name for name in names if name not in others and self._is_wanted(name)]
        if not names:
            kept = f"in {least} captions or more, in {most:g} or fewer, and not excluded"
            highest = f"the most frequent one is in {max(counts.values(), default=0)} of {candidates.captions}"
            raise UserError(
                f"concepts.vocabulary: none of {len(counts)} nouns is {kept}; {highest}; change min_captions"
            )
        used = {lemmas.get(word, word) for name in names for word in name.split()}
        inflected = {word: lemma for word, lemma in sorted(lemmas.items()) if lemma in used and lemma != word}
        return Vocabulary([Concept(name) for name in names], inflected)

    @cached_property
    def _tagger(self) -> NounTagger:
        return NounTagger(self._wordnet)

    def _is_wanted(self, name: str) -> bool:
        excluded = any(fnmatch.fnmatchcase(name, pattern) for pattern in self.settings.exclude)
        return not excluded and (not self.settings.wordnet_only or name in self._wordnet)


def _lemmas(forms: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """Return the lemma of every word that is a noun in at least half of its places: the one that it has most often.

    A word that is a lemma of another word is its own lemma, so that lemmas of lemmas do not change.
    """
    by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (word, lemma), count in forms.items():
        by_word[word][lemma] += count
    lemmas = {}
    for word, counts in by_word.items():
        others = counts.pop(NO_NOUN, 0)
        if 0 < counts.total() >= others:
            lemmas[word] = _most_frequent(counts)
    return lemmas | {lemma: lemma for lemma in lemmas.values()}


def _merge_by_lemmas(counts: Mapping[str, int], lemmas: Mapping[str, str]) -> dict[str, int]:
    """Add up the captions of names that are matched alike, under the most frequent of them.

    A caption that has two of these counts twice.
    """
    alike: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, count in counts.items():
        alike[" ".join(lemmas.get(word, word) for word in name.split())][name] = count
    return {_most_frequent(names): names.total() for names in alike.values()}


def _lemmas_rarely_nouns(forms: Mapping[tuple[str, str], int], lemmas: Mapping[str, str]) -> set[str]:
    """Return the lemmas of words that are not a noun in most of the places where they would be matched."""
    nouns, others = Counter[str](), Counter[str]()
    for (word, lemma), count in forms.items():
        places = others if lemma == NO_NOUN else nouns
        places[lemmas.get(word, word)] += count
    return {lemma for lemma, count in others.items() if count > nouns[lemma]}


def _most_frequent(counts: Mapping[str, int]) -> str:
    """Return the first in the alphabet of those that are as frequent as any."""
    return min(counts, key=lambda name: (-counts[name], name))
