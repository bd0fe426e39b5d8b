"""Stage concept_mentions: the concepts that each caption of a range of tars names."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import SPLITS, images_of_range, range_keys
from hpcddm.runs.unit_keys import CATALOG, CONCEPT_VOCABULARY

MENTIONS_OF_CAPTION, MENTION_BYTES, OFFSET_BYTES = 12, 4, 8
"""Concepts that a caption is expected to name at most, the bytes of one, and of the place where a caption's begin."""


def mentions_keys(experiment: Experiment, splits: tuple[str, ...] = SPLITS) -> list[str]:
    """List the units of the stage: the ranges of some splits, or nothing where no caption is looked at."""
    concepts = experiment.concepts
    is_matched = concepts is not None and concepts.vocabulary.is_matched
    return range_keys(experiment, "concept_mentions", splits) if is_matched else []


class ConceptMentionsStage(Stage):
    """A unit looks for the concepts in the captions of one range."""

    name = "concept_mentions"
    reads = ("catalog", "concept_vocabulary")

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges, or nothing."""
        return mentions_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the concepts, and the catalog, which says where the captions lie."""
        return [CATALOG, CONCEPT_VOCABULARY]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover what counts as a match."""
        return {"concepts.matching": experiment.concept_settings.matching}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a dozen concepts of each caption, which wait on disk before they are written."""
        size = images_of_range(experiment, key, images) * (MENTIONS_OF_CAPTION * MENTION_BYTES + OFFSET_BYTES)
        return DiskSpace(size, size, 1)
