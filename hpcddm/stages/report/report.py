"""Stage report: the page and metrics.json of a run, from all manifests, statistics and samples."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.disk_sizes import values_per_image
from hpcddm.pipeline.fingerprints import class_name_settings
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.unit_keys import CLUSTER_REPORT, REPORT
from hpcddm.stages.concepts.concept_analysis import concepts_keys, page_bytes
from hpcddm.stages.data.cluster_report import images_per_cluster
from hpcddm.stages.evaluation.compare import compare_keys
from hpcddm.stages.evaluation.draw import (
    arm_names,
    draw_keys,
    evaluation_settings,
    sampling_units,
)
from hpcddm.stages.training.evaluators import evaluator_keys
from hpcddm.stages.unit_kinds import SamplingUnits

GALLERY_IMAGES = 20
"""Pictures in the gallery per arm and per expert."""
GALLERY_ESTIMATES = 8
"""Estimates of each of these pictures on its way from noise, of one strategy."""
PAGE_BYTES = 200_000
"""Bytes of the page's plots and text."""


class ReportStage(SamplingUnits, Stage):
    """Stage with one unit, which merges the comparisons of the arms and writes the page."""

    name = "report"
    reads = (
        *("catalog", "autoencoder", "latents", "expert_lists", "cluster_report", "encode_captions"),
        *("evaluators", "train", "probe", "router", "distill", "draw", "compare", "concept_analysis"),
    )

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit."""
        return [REPORT]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the inputs of the evaluation, its ranges, and the comparisons of the arms."""
        evaluators = [*evaluator_keys(experiment), *compare_keys(experiment)]
        return [*sampling_units(experiment), *draw_keys(experiment), *evaluators]

    def extras(self, experiment: Experiment) -> list[str]:
        """List the units about clusters and concepts; the page is written even without them."""
        return [CLUSTER_REPORT, *concepts_keys(experiment)]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the evaluation and the names that the page shows."""
        return evaluation_settings(experiment) | {"name": experiment.name} | class_name_settings(experiment)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the page with its pictures; Base64 turns three bytes into four."""
        experts, arms = experiment.cluster.experts, len(arm_names(experiment))
        pictures = images_per_cluster(experiment) * experts
        pictures += GALLERY_IMAGES * (arms + experts + GALLERY_ESTIMATES + 1 + experts)
        encoded = pictures * values_per_image(experiment) * 4 // 3
        return DiskSpace(PAGE_BYTES + encoded + page_bytes(experiment), 0, 2)
