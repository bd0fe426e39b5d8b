"""Stage concept_alignment: whether the experts that are asked are those whose data cover the state."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline.fingerprints import SAMPLES
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.unit_keys import CLUSTER, CONCEPT_ALIGNMENT, CONCEPT_COUNTS, expert_keys
from hpcddm.stages.data.captions import uncounted_captions
from hpcddm.stages.data.latent_scale import space_parts
from hpcddm.stages.evaluation.evaluate import evaluation_settings, gpus_to_sample, sampling_units

ALIGNMENT_BYTES = 100_000
"""Bytes of the file."""


def alignment_keys(experiment: Experiment) -> list[str]:
    """List the stage's only unit, or nothing; a single expert is always the one that is asked."""
    return [CONCEPT_ALIGNMENT] if experiment.concepts and experiment.cluster.experts > 1 else []


class ConceptAlignmentStage(Stage):
    """Its one unit asks all experts about held-out images of the scored concepts, and about samples in the making."""

    name = "concept_alignment"
    reads = (
        *("catalog", "autoencoder", "latent_scale", "cluster", "lists", "captions", "texts", "measuring", "train"),
        *("route", "distill", "concept_counts"),
    )
    gpus = Gpus.NODE

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit, or nothing."""
        return alignment_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return what drawing samples reads, the partition, and the concepts."""
        return [*sampling_units(experiment), CLUSTER, CONCEPT_COUNTS]

    def optional(self, experiment: Experiment) -> list[str]:
        """List the experts."""
        return expert_keys(experiment)

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples, not where they lie."""
        return SAMPLES | space_parts(experiment) | uncounted_captions(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover how images are drawn; of the evaluation neither its number of images nor its batch."""
        settings = evaluation_settings(experiment)
        evaluate = {name: value for name, value in settings["evaluate"].items() if name not in ("images", "batch")}
        return settings | {"evaluate": evaluate, "encode": hashed(experiment.encode)}

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return the GPUs of the placement."""
        return gpus_to_sample(experiment)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the file."""
        return DiskSpace(ALIGNMENT_BYTES, 0, 1)
