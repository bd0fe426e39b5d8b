"""Stage concept_words: the nouns of the captions of a range of tars, for a vocabulary that is made of them."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import range_keys
from hpcddm.runs.unit_keys import CATALOG

WORD_BYTES, MOST_WORDS = 40, 200_000
"""Bytes of a word with its counts, and the most different ones that captions are expected to have."""


def words_keys(experiment: Experiment) -> list[str]:
    """List the units of the stage: all ranges, or nothing where the vocabulary is not made of captions."""
    concepts = experiment.concepts
    is_read = concepts is not None and concepts.vocabulary.reads_captions
    return range_keys(experiment, "concept_words") if is_read else []


class ConceptWordsStage(Stage):
    """A unit counts the nouns of one range."""

    name = "concept_words"
    reads = ("catalog",)

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges, or nothing."""
        return words_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog, which says where the captions lie."""
        return [CATALOG]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover what the nouns depend on, not which of them become concepts."""
        return {"concepts.vocabulary": experiment.concept_settings.vocabulary.of_candidates}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the most words."""
        return DiskSpace(WORD_BYTES * MOST_WORDS, 0, 1)
