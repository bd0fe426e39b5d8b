"""Stage concept_tags: the concepts that each image of a range of tars shows most."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline.fingerprints import image_settings
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.ranges import images_of_range, tags_keys
from hpcddm.runs.unit_keys import CATALOG, CONCEPT_VOCABULARY
from hpcddm.stages.concepts.concept_tagger import tagger_gpus, tagger_keys
from hpcddm.stages.concepts.concept_vocabulary import CONCEPT_BYTES, MOST_CONCEPTS

TAGS_OF_IMAGE, TAG_BYTES = 32, 6
"""Concepts of the largest scores that are kept of each image, and the bytes of one: its number, and a float16."""


class ConceptTagsStage(Stage):
    """A unit tags the images of one range."""

    name = "concept_tags"
    reads = ("catalog", "measuring", "concept_vocabulary", "concept_tagger")
    gpus = Gpus.ONE

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges, or nothing."""
        return tags_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the images, the concepts and the tagger."""
        return [CATALOG, CONCEPT_VOCABULARY, *tagger_keys(experiment)]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the tagger, and how the images are seen."""
        return {"concepts.tagger": hashed(experiment.concept_settings.tagger), "data": image_settings(experiment)}

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return no GPU for a tagger that computes next to nothing."""
        return tagger_gpus(experiment)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the concepts of every image, which wait on disk before they are written, and the thresholds."""
        size = images_of_range(experiment, key, images) * TAGS_OF_IMAGE * TAG_BYTES
        return DiskSpace(size + CONCEPT_BYTES * MOST_CONCEPTS, size, 2)
