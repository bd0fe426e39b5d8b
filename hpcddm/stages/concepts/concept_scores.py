"""Stage concept_scores: samples and scores of some concepts in every arm, next to real images."""

from typing import Any, ClassVar

from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import parse_strategy
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.disk_sizes import values_per_image
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import TRAIN, range_keys
from hpcddm.runs.unit_keys import (
    CLUSTER,
    CONCEPT_ALIGNMENT,
    CONCEPT_COUNTS,
    CONCEPT_VOCABULARY,
    EXTRACTOR,
    HOME_ARM,
    expert_keys,
    unit_name,
)
from hpcddm.stages.concepts.concept_tags import tagger_keys
from hpcddm.stages.evaluation.draw import (
    arm_names,
    evaluation_settings,
    sampling_units,
    strategy_labels,
)
from hpcddm.stages.unit_kinds import SamplingUnits

SHOWN, ROW_BYTES = 4, 600
"""Samples of each concept and arm that are kept as pictures; bytes of the scores of one concept in one arm."""
BINS = 14
"""Half decades of frequency that are expected, zeros among them."""
ALIGNMENT_BYTES = 100_000
"""Bytes of the file of the alignment."""


def scores_keys(experiment: Experiment) -> list[str]:
    """List the units that score, each a part of the concepts."""
    concepts = experiment.concepts
    return [f"concept_scores/{part:03d}" for part in range(concepts.units)] if concepts else []


def alignment_keys(experiment: Experiment) -> list[str]:
    """List the unit of the alignment; empty with a single expert, which every sample uses."""
    return [CONCEPT_ALIGNMENT] if experiment.concepts and experiment.cluster.experts > 1 else []


def part_of_unit(experiment: Experiment, key: str) -> tuple[int, int]:
    """Return the number of the part of the concepts that a unit scores, and the number of parts."""
    return int(unit_name(key)), experiment.concept_settings.units


def concept_strategies(experiment: Experiment) -> list[str]:
    """List the canonical names of the strategies that sample the concepts."""
    named = experiment.concept_settings.strategies
    return [parse_strategy(name).label for name in named] or strategy_labels(experiment)[:1]


def whole_arms(experiment: Experiment) -> list[str]:
    """List the arms that sample the concepts, without single experts: dense models, then strategies."""
    dense = [arm for arm in arm_names(experiment) if arm not in strategy_labels(experiment)]
    return [*dense, *concept_strategies(experiment)]


def scored_arms(experiment: Experiment) -> list[str]:
    """List all arms that sample the concepts, including each single expert or each concept's home expert."""
    each = experiment.concept_settings.each_expert
    return [*whole_arms(experiment), *(map(unit_name, expert_keys(experiment)) if each else [HOME_ARM])]


def nearest_keys(experiment: Experiment) -> list[str]:
    """List the units of the training images' features, which are searched for a sample's nearest neighbours."""
    needs_features = experiment.cluster.clustering.needs_features and experiment.encode.encoder.reads_images
    return range_keys(experiment, "encode", (TRAIN,)) if needs_features else []


class ConceptAlignment(SamplingUnits):
    """Unit that evaluates all experts on held-out images of the scored concepts, and during sampling."""

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return what drawing samples reads, the partition, and the concepts."""
        return [*sampling_units(experiment), CLUSTER, CONCEPT_COUNTS]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include how images are drawn; of the evaluation neither its number of images nor its batch."""
        settings = evaluation_settings(experiment, ("images", "batch"))
        return settings | {"encode": settings_to_hash(experiment.encode)}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the file."""
        return DiskSpace(ALIGNMENT_BYTES, 0, 1)


class ConceptScoresStage(SamplingUnits, Stage):
    """Stage whose usual units sample and score a part of the concepts."""

    name = "concept_scores"
    reads = (
        *("catalog", "autoencoder", "latents", "encode", "cluster", "expert_lists", "encode_captions", "evaluators"),
        *("train", "probe", "router", "distill", "concept_vocabulary", "concept_tags", "concept_counts"),
    )
    other_kinds: ClassVar = {CONCEPT_ALIGNMENT: ConceptAlignment()}

    def units(self, experiment: Experiment) -> list[str]:
        """List the parts, then the alignment."""
        return [*scores_keys(experiment), *alignment_keys(experiment)]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return what drawing and measuring samples reads, the tagger, and the concepts."""
        networks = [*sampling_units(experiment), EXTRACTOR, *tagger_keys(experiment)]
        return list(dict.fromkeys([*networks, *nearest_keys(experiment), CONCEPT_VOCABULARY, CONCEPT_COUNTS]))

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include how images are drawn and scored; of the evaluation not its number of images."""
        settings, asked = evaluation_settings(experiment, ("images", "strategies")), experiment.concept_settings
        own = {"samples": asked.samples, "arms": scored_arms(experiment), "tagger": settings_to_hash(asked.tagger)}
        own["perceptual"] = settings_to_hash(asked.perceptual) if asked.perceptual else None
        settings |= {"concepts": own, "part": f"{unit_name(key)} of {asked.units}"}
        return settings | {"encode": settings_to_hash(experiment.encode)}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate scores and pictures of the most concepts that can be chosen."""
        concepts = experiment.concept_settings
        rows = -(-concepts.per_bin * BINS // concepts.units) * (len(scored_arms(experiment)) + 1)
        return DiskSpace(rows * (ROW_BYTES + SHOWN * values_per_image(experiment)), 0, 2)
