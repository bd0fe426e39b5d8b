"""Stage concept_tagger: the training of what says which concepts an image shows, where it is trained."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline.fingerprints import image_settings
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.unit_keys import CATALOG, CONCEPT_TAGGER, CONCEPT_VOCABULARY
from hpcddm.stages.concepts.concept_mentions import mentions_keys

TAGGER_BYTES = 64_000_000
"""Bytes of what is trained, two heads and a number for each concept; encoders are none of it."""


def tagger_keys(experiment: Experiment) -> list[str]:
    """List the units that make the tagger: its training, or the networks of the run that it uses."""
    if experiment.concepts is None:
        return []
    tagger = experiment.concepts.tagger
    return [*([CONCEPT_TAGGER] if tagger.is_trained else []), *tagger.networks(experiment)]


def tagger_gpus(experiment: Experiment) -> Gpus:
    """Return the GPUs that the tagger can use."""
    concepts = experiment.concepts
    return Gpus.ONE if concepts is not None and concepts.tagger.uses_gpu else Gpus.NONE


class ConceptTaggerStage(Stage):
    """Its one unit trains the tagger; there is none where it is not trained."""

    name = "concept_tagger"
    reads = ("catalog", "concept_vocabulary", "concept_mentions")
    gpus = Gpus.ONE

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit, or nothing."""
        return [key for key in tagger_keys(experiment) if key == CONCEPT_TAGGER]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the training images and what their captions name."""
        return [CATALOG, CONCEPT_VOCABULARY, *mentions_keys(experiment, (TRAIN,))]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the tagger, not the experiment's seed: scores of different taggers could not be compared."""
        concepts = experiment.concept_settings
        return {"concepts.tagger": hashed(concepts.tagger), "concepts.seed": concepts.seed} | {
            "data": image_settings(experiment)
        }

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return no GPU for a tagger that computes next to nothing."""
        return tagger_gpus(experiment)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate what is trained."""
        return DiskSpace(TAGGER_BYTES, 0, 1)
