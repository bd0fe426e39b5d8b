"""Stage concept_tags: concepts in the captions and images of a range of tars, and training of the tagger."""

from typing import Any, ClassVar

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.fingerprints import image_settings
from hpcddm.pipeline.stage import DiskSpace, GpuUse, Stage, UnitKind
from hpcddm.runs.ranges import images_of_range, tags_keys
from hpcddm.runs.unit_keys import CATALOG, CONCEPT_TAGGER, CONCEPT_VOCABULARY
from hpcddm.stages.concepts.concept_vocabulary import CONCEPT_BYTES, MAX_CONCEPTS

MENTIONS_OF_CAPTION, MENTION_BYTES, OFFSET_BYTES = 12, 4, 8
"""Concepts that a caption is expected to name at most, the bytes of one, and of the place where a caption's begin."""
TAGS_OF_IMAGE, TAG_BYTES = 32, 6
"""Concepts of the largest scores that are kept of each image, and the bytes of one: its number, and a float16."""
TAGGER_BYTES = 64_000_000
"""Bytes of the trained parameters: two heads and a number for each concept, without encoders."""


def tagger_keys(experiment: Experiment) -> list[str]:
    """List the units that the tagger needs: its training, or networks of the run."""
    if experiment.concepts is None:
        return []
    tagger = experiment.concepts.tagger
    return [*([CONCEPT_TAGGER] if tagger.is_trained else []), *tagger.networks(experiment)]


def tagging_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of the tagger, of how it sees the images, and of what counts as a match in captions."""
    concepts = experiment.concept_settings
    matching = {"concepts.matching": concepts.matching} if concepts.vocabulary.is_matched else {}
    return {"concepts.tagger": settings_to_hash(concepts.tagger), "data": image_settings(experiment)} | matching


class TaggingUnits(UnitKind):
    """Units that run the networks of a tagger."""

    gpus = GpuUse.ONE

    def usable_gpus(self, experiment: Experiment) -> GpuUse:
        """Return `GpuUse.NONE` for a tagger that needs no GPU."""
        concepts = experiment.concepts
        return GpuUse.ONE if concepts is not None and concepts.tagger.uses_gpu else GpuUse.NONE


class ConceptTagger(TaggingUnits):
    """Unit that trains the tagger."""

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the training images and their captions, and the concepts."""
        return [CATALOG, CONCEPT_VOCABULARY]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the tagger, not the experiment's seed: scores of different taggers could not be compared."""
        return tagging_settings(experiment) | {"concepts.seed": experiment.concept_settings.seed}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the trained parameters."""
        return DiskSpace(TAGGER_BYTES, 0, 1)


class ConceptTagsStage(TaggingUnits, Stage):
    """Stage whose usual units find the concepts in captions and images of one range."""

    name = "concept_tags"
    reads = ("catalog", "evaluators", "concept_vocabulary")
    other_kinds: ClassVar = {CONCEPT_TAGGER: ConceptTagger()}

    def units(self, experiment: Experiment) -> list[str]:
        """List the tagger, where it is trained, then the ranges; nothing for an experiment that counts no concepts."""
        return [*(key for key in tagger_keys(experiment) if key == CONCEPT_TAGGER), *tags_keys(experiment)]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the images, the concepts and the tagger."""
        return [CATALOG, CONCEPT_VOCABULARY, *tagger_keys(experiment)]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the tagger, the images' format, and the rules for a match."""
        return tagging_settings(experiment)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the concepts of every image and of its caption, which wait on disk, and the thresholds."""
        of_caption = MENTIONS_OF_CAPTION * MENTION_BYTES + OFFSET_BYTES
        size = images_of_range(experiment, key, images) * (TAGS_OF_IMAGE * TAG_BYTES + of_caption)
        return DiskSpace(size + CONCEPT_BYTES * MAX_CONCEPTS, size, 3)
