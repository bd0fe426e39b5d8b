"""Stage concept_counts: how often captions name each concept and images show it, in all data and in each cluster."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.fingerprints import SAMPLES
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import tags_keys
from hpcddm.runs.unit_keys import CATALOG, CONCEPT_COUNTS, CONCEPT_VOCABULARY, LISTS
from hpcddm.stages.concepts.concept_mentions import mentions_keys
from hpcddm.stages.concepts.concept_vocabulary import MOST_CONCEPTS

COUNTED = 3
"""Counts of a concept in a cluster: by captions, by images, and by both."""


class ConceptCountsStage(Stage):
    """Its one unit adds up the ranges, and chooses the concepts that are scored."""

    name = "concept_counts"
    reads = ("catalog", "lists", "concept_vocabulary", "concept_mentions", "concept_tags")

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit, or nothing."""
        return [CONCEPT_COUNTS] if experiment.concepts else []

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the concepts of all samples, and their clusters."""
        return [CATALOG, LISTS, CONCEPT_VOCABULARY, *mentions_keys(experiment), *tags_keys(experiment)]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples and their clusters, not where they lie."""
        return SAMPLES

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover which samples count, and which concepts are scored."""
        concepts = experiment.concept_settings
        keys = ("frequency", "per_bin", "least_real", "most_real", "samples", "seed")
        return {"cluster.experts": experiment.cluster.experts} | {
            f"concepts.{key}": getattr(concepts, key) for key in keys
        }

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the counts of the most concepts."""
        return DiskSpace(COUNTED * 8 * MOST_CONCEPTS * experiment.cluster.experts, 0, 2)
