"""Stage concept_vocabulary: the concepts to count, from a file, the classes, or the nouns in captions."""

from typing import Any, ClassVar

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.fingerprints import class_name_settings
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import range_keys
from hpcddm.runs.unit_keys import CATALOG, CONCEPT_VOCABULARY
from hpcddm.stages.unit_kinds import CatalogUnits

CONCEPT_BYTES, MAX_CONCEPTS = 60, 50_000
"""Bytes of a concept, and the most that are expected."""
WORD_BYTES, MAX_WORDS = 40, 200_000
"""Bytes of a word with its counts, and the most different ones that captions are expected to have."""


def words_keys(experiment: Experiment) -> list[str]:
    """List the units that count nouns: all ranges, or none where the vocabulary is not made of captions."""
    concepts = experiment.concepts
    is_read = concepts is not None and concepts.vocabulary.reads_captions
    return range_keys(experiment, "concept_vocabulary") if is_read else []


class ConceptVocabulary(CatalogUnits):
    """Unit that selects the concepts from the nouns of all ranges, a file, or the classes."""

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the nouns of all ranges, and the catalog, which names the classes."""
        return [CATALOG, *words_keys(experiment)]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the vocabulary and, if its concepts are the classes, their names."""
        vocabulary = experiment.concept_settings.vocabulary
        names = {} if vocabulary.is_matched else class_name_settings(experiment)
        return {"concepts.vocabulary": settings_to_hash(vocabulary)} | names

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the most concepts."""
        return DiskSpace(CONCEPT_BYTES * MAX_CONCEPTS, 0, 1)


class ConceptVocabularyStage(Stage):
    """Stage whose usual units count the nouns of one range."""

    name = "concept_vocabulary"
    reads = ("catalog",)
    other_kinds: ClassVar = {CONCEPT_VOCABULARY: ConceptVocabulary()}

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges, then the vocabulary; nothing for an experiment that counts no concepts."""
        return [*words_keys(experiment), CONCEPT_VOCABULARY] if experiment.concepts else []

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog, which gives the location of the captions."""
        return [CATALOG]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the settings that determine the nouns, not the choice of concepts among them."""
        return {"concepts.vocabulary": experiment.concept_settings.vocabulary.of_candidates}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the most words."""
        return DiskSpace(WORD_BYTES * MAX_WORDS, 0, 1)
