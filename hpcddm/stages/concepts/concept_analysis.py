"""Stage concept_analysis: dependence of concepts' scores on their frequencies, and a proposed partition."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.disk_sizes import values_per_image
from hpcddm.pipeline.fingerprints import SAMPLES
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import tags_keys
from hpcddm.runs.unit_keys import CATALOG, CONCEPT_ANALYSIS, CONCEPT_COUNTS, CONCEPT_VOCABULARY, EXPERT_LISTS
from hpcddm.stages.concepts.concept_scores import ROW_BYTES, alignment_keys, scored_arms, scores_keys
from hpcddm.stages.concepts.concept_vocabulary import MAX_CONCEPTS

PAGE_BYTES, SHOWN_PICTURES = 500_000, 16 * 4 * 4
"""Bytes of the page without pictures; pictures on it: four of a concept in each of four arms."""


def concepts_keys(experiment: Experiment) -> list[str]:
    """List the unit of the stage; nothing for an experiment that counts no concepts."""
    return [CONCEPT_ANALYSIS] if experiment.concepts else []


def page_bytes(experiment: Experiment) -> int:
    """Estimate the page and its pictures, once more as Base64, which makes four bytes of three; 0 without concepts."""
    pictures = SHOWN_PICTURES * values_per_image(experiment)
    return PAGE_BYTES + pictures + pictures * 4 // 3 if experiment.concepts else 0


class ConceptAnalysisStage(Stage):
    """Stage with one unit, which merges the scores, relates them to the frequencies, and proposes another partition."""

    name = "concept_analysis"
    reads = ("catalog", "expert_lists", "concept_vocabulary", "concept_tags", "concept_counts", "concept_scores")

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit; empty if the experiment does not need it."""
        return concepts_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return counts and scores, and for the proposal the concepts and clusters of all samples."""
        samples = [CATALOG, EXPERT_LISTS, *tags_keys(experiment)]
        return [*samples, CONCEPT_VOCABULARY, CONCEPT_COUNTS, *scores_keys(experiment), *alignment_keys(experiment)]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Include samples and clusters, not their locations."""
        return SAMPLES

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the settings of the analysis."""
        concepts = experiment.concept_settings
        return {"concepts": settings_to_hash(concepts), "arms": scored_arms(experiment), "seed": experiment.seed}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the tables of the most concepts, a line of the proposal for each sample, and the page."""
        return DiskSpace(3 * ROW_BYTES * MAX_CONCEPTS + 80 * sum(images.values()) + page_bytes(experiment), 0, 8)
