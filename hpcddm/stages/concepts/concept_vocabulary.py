"""Stage concept_vocabulary: the concepts that are counted."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.unit_keys import CATALOG, CONCEPT_VOCABULARY
from hpcddm.stages.concepts.concept_words import words_keys

CONCEPT_BYTES, MOST_CONCEPTS = 60, 50_000
"""Bytes of a concept, and the most that are expected."""


def vocabulary_keys(experiment: Experiment) -> list[str]:
    """List the unit of the vocabulary; nothing for an experiment that counts no concepts."""
    return [CONCEPT_VOCABULARY] if experiment.concepts else []


class ConceptVocabularyStage(Stage):
    """Its one unit chooses the concepts among the nouns of all ranges, or takes those of a file, or the classes."""

    name = "concept_vocabulary"
    reads = ("catalog", "concept_words")

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit, or nothing."""
        return vocabulary_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the nouns of all ranges, and the catalog, which names the classes."""
        return [CATALOG, *words_keys(experiment)]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples, not where they lie."""
        return {CATALOG: ALL}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the vocabulary."""
        return {"concepts.vocabulary": hashed(experiment.concept_settings.vocabulary)}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the most concepts."""
        return DiskSpace(CONCEPT_BYTES * MOST_CONCEPTS, 0, 1)
