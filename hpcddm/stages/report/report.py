"""Stage report: the page and metrics.json of a run, from all manifests, statistics and samples."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.disk import values_per_image
from hpcddm.pipeline.fingerprints import SAMPLES
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.unit_keys import INSPECT, REPORT, expert_keys
from hpcddm.stages.concepts.concepts import concepts_keys, page_bytes
from hpcddm.stages.data.captions import uncounted_captions
from hpcddm.stages.data.inspect import pictures_per_cluster
from hpcddm.stages.data.latent_scale import space_parts
from hpcddm.stages.evaluation.evaluate import (
    arm_names,
    evaluate_keys,
    evaluation_settings,
    gpus_to_sample,
    sampling_units,
)

GALLERY_PICTURES = 20
"""Pictures in the gallery per arm and per expert."""
PAGE_BYTES = 200_000
"""Bytes of the page's plots and text."""


class ReportStage(Stage):
    """Its one unit merges the ranges of evaluate and writes the page."""

    name = "report"
    reads = (
        *("catalog", "autoencoder", "latent_scale", "lists", "inspect", "captions", "texts"),
        *("measuring", "train", "route", "distill", "evaluate", "concepts"),
    )
    gpus = Gpus.NODE

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [REPORT]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return what the evaluation reads, and its ranges."""
        return [*sampling_units(experiment), *evaluate_keys(experiment)]

    def optional(self, experiment: Experiment) -> list[str]:
        """List the experts."""
        return expert_keys(experiment)

    def extras(self, experiment: Experiment) -> list[str]:
        """List what is known of clusters and concepts: without it the page comes all the same."""
        return [INSPECT, *concepts_keys(experiment)]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples, not where they lie."""
        return SAMPLES | space_parts(experiment) | uncounted_captions(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the evaluation and the name that the page bears."""
        return evaluation_settings(experiment) | {"name": experiment.name}

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return the GPUs of the placement."""
        return gpus_to_sample(experiment)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the page with its pictures, of which Base64 makes four bytes of three."""
        experts, arms = experiment.cluster.experts, len(arm_names(experiment))
        pictures = pictures_per_cluster(experiment) * experts + GALLERY_PICTURES * (arms + experts)
        encoded = pictures * values_per_image(experiment) * 4 // 3
        return DiskSpace(PAGE_BYTES + encoded + page_bytes(experiment), 0, 2)
