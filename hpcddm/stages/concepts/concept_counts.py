"""Stage concept_counts: frequency of each concept in captions and images, overall and per cluster."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.fingerprints import SAMPLES
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import tags_keys
from hpcddm.runs.unit_keys import CATALOG, CONCEPT_COUNTS, CONCEPT_VOCABULARY, EXPERT_LISTS
from hpcddm.stages.concepts.concept_vocabulary import MAX_CONCEPTS

COUNTED = 3
"""Counts of a concept in a cluster: by captions, by images, and by both."""


class ConceptCountsStage(Stage):
    """Stage with one unit, which sums the counts of all ranges and selects the concepts to score."""

    name = "concept_counts"
    reads = ("catalog", "expert_lists", "concept_vocabulary", "concept_tags")

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit; empty if the experiment does not need it."""
        return [CONCEPT_COUNTS] if experiment.concepts else []

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the concepts of all samples, and their clusters."""
        return [CATALOG, EXPERT_LISTS, CONCEPT_VOCABULARY, *tags_keys(experiment)]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Include samples and clusters, not their locations."""
        return SAMPLES

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include which samples count, and which concepts are scored."""
        concepts = experiment.concept_settings
        keys = ("frequency", "per_bin", "min_real", "max_real", "samples", "seed")
        own = {f"concepts.{key}": getattr(concepts, key) for key in keys}
        return {"cluster.experts": experiment.cluster.experts} | own

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the counts of the most concepts."""
        return DiskSpace(COUNTED * 8 * MAX_CONCEPTS * experiment.cluster.experts, 0, 2)
