"""Nouns of captions: HanTa tags the words (Wartena 2019), WordNet knows nouns of two words, and irregular plurals."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple

from hpcddm.errors import UserError
from hpcddm.errors.next_step import install_command
from hpcddm.evaluation.concepts.plurals import is_plural
from hpcddm.evaluation.concepts.tokenise import segments
from hpcddm.evaluation.concepts.wordnet_nouns import WordNet

MODEL = "morphmodel_en.pgz"
"""HanTa's own model of English."""
NOUN, PLURAL = "N", "NN2"
"""Beginning of the tags of nouns and proper names, and the tag of plurals, in the British National Corpus' tag set."""
NO_NOUN = ""
"""Lemma of a word that is not a noun in its sentence."""
MAX_LETTERS = 40
"""Characters of the longest word that may be a noun: time to tag a word grows with the square of its length."""
CACHE_SIZE = 2**16
"""Segments, and words, whose nouns are kept: most words are seen again, and segments of captions that list keywords."""


class Nouns(NamedTuple):
    """Nouns of a segment of a caption by their lemmas, and each of its words with its lemma.

    Words that are a noun nowhere, as those with digits are, are not among the latter.
    """

    names: tuple[str, ...]
    forms: tuple[tuple[str, str], ...]


class NounTagger:
    """Finds the nouns of captions in English; creating it raises `UserError` where HanTa is not installed."""

    def __init__(self, wordnet: WordNet) -> None:
        require_hanta()
        from HanTa.HanoverTagger import HanoverTagger

        self._wordnet, self._tagger = wordnet, HanoverTagger(MODEL)
        # Pure functions of a word, which cost most of the time.
        self._tagger.analyze_forward = lru_cache(CACHE_SIZE)(self._tagger.analyze_forward)
        self._lemma = lru_cache(CACHE_SIZE)(self._lemma_of)
        self._of_segment = lru_cache(CACHE_SIZE)(self._tagged)

    def nouns(self, caption: str) -> Iterable[Nouns]:
        """Yield the nouns of each segment of a caption."""
        return map(self._of_segment, segments(caption))

    def _tagged(self, words: Sequence[str]) -> Nouns:
        tags = self._tagger.tag_sent([word[:MAX_LETTERS] for word in words], taglevel=0, casesensitive=False)
        lemmas = [self._lemma(word, tag) for word, tag in zip(words, tags, strict=True)]
        names = [lemma for lemma in lemmas if lemma != NO_NOUN]
        for place in range(1, len(words)):
            names += self._pair(words[place - 1], lemmas[place - 1], lemmas[place])
        forms = (form for form in zip(words, lemmas, strict=True) if _may_be_noun(form[0]))
        return Nouns(tuple(names), tuple(forms))

    def _pair(self, word: str, lemma: str, last: str) -> list[str]:
        """Return the noun of two words, such as 'fire engine' or 'polar bear', where WordNet has it, in a list."""
        pairs = (f"{first} {last}" for first in (lemma, word))
        return [pair for pair in pairs if pair in self._wordnet][:1]

    def _lemma_of(self, word: str, tag: str) -> str:
        """Return the singular of a noun, and `NO_NOUN` for another word.

        WordNet's singular goes first. HanTa's is taken only of a word that WordNet does not know, and only where a rule
        makes the word of it; else the word is its own lemma.
        """
        if not tag.startswith(NOUN) or not _may_be_noun(word):
            return NO_NOUN
        lemma = str(self._tagger.analyze(word, tag)[0]).lower() if tag == PLURAL else word
        if lemma == word and word in self._wordnet:
            # Singulars, and plurals without one, such as 'pants'.
            return word
        # HanTa guesses singulars that are none, such as 'ferry' of 'ferris', and knows few irregular plurals.
        singular = self._wordnet.singular(word)
        if singular is None and word not in self._wordnet and is_plural(word, lemma):
            return lemma
        return singular or word


def _may_be_noun(word: str) -> bool:
    return word.isalpha() and 1 < len(word) <= MAX_LETTERS


def require_hanta() -> None:
    """Raise `UserError` where HanTa is not installed."""
    if find_spec("HanTa") is None:
        needed = f"nouns of captions need the package HanTa; install it with: {install_command('HanTa')}"
        raise UserError(f"concepts.vocabulary: {needed}, or name a file with the concepts")
