"""Stage concept_scores: samples of some concepts in every arm, beside real images of them."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.config.strategies import parse as parse_strategy
from hpcddm.pipeline.disk import values_per_image
from hpcddm.pipeline.fingerprints import SAMPLES
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.ranges import TRAIN, range_keys
from hpcddm.runs.unit_keys import CONCEPT_COUNTS, CONCEPT_VOCABULARY, HOME_ARM, expert_keys, name_of
from hpcddm.stages.concepts.concept_tagger import tagger_keys
from hpcddm.stages.data.captions import uncounted_captions
from hpcddm.stages.data.latent_scale import space_parts
from hpcddm.stages.evaluation.evaluate import (
    arm_names,
    evaluation_settings,
    gpus_to_sample,
    sampling_units,
    strategy_labels,
)

SHOWN, ROW_BYTES = 4, 600
"""Samples of each concept and arm that are kept as pictures; bytes of the scores of one concept in one arm."""
BINS = 14
"""Half decades of frequency that are expected, zeros among them."""


def scores_keys(experiment: Experiment) -> list[str]:
    """List the units of the stage, parts of the concepts that are scored."""
    concepts = experiment.concepts
    return [f"concept_scores/{part:03d}" for part in range(concepts.units)] if concepts else []


def part_of_unit(experiment: Experiment, key: str) -> tuple[int, int]:
    """Return which part of the concepts a unit scores, and of how many."""
    return int(name_of(key)), experiment.concept_settings.units


def concept_strategies(experiment: Experiment) -> list[str]:
    """List the canonical names of the strategies that draw the concepts."""
    named = experiment.concept_settings.strategies
    return [parse_strategy(name).label for name in named] or strategy_labels(experiment)[:1]


def whole_arms(experiment: Experiment) -> list[str]:
    """List the arms that draw the concepts, but experts alone: dense models, then strategies of the ensemble."""
    dense = [arm for arm in arm_names(experiment) if arm not in strategy_labels(experiment)]
    return [*dense, *concept_strategies(experiment)]


def scored_arms(experiment: Experiment) -> list[str]:
    """List the arms that draw the concepts: each expert alone, too, or of each concept its home expert."""
    each = experiment.concept_settings.each_expert
    return [*whole_arms(experiment), *(map(name_of, expert_keys(experiment)) if each else [HOME_ARM])]


def nearest_keys(experiment: Experiment) -> list[str]:
    """List the units of the training images' features, among which the nearest of a sample is looked for."""
    needs_features = experiment.cluster.clustering.needs_features and experiment.encode.encoder.reads_images
    return range_keys(experiment, "encode", (TRAIN,)) if needs_features else []


class ConceptScoresStage(Stage):
    """A unit draws and scores some of the concepts."""

    name = "concept_scores"
    reads = (
        *("catalog", "autoencoder", "latent_scale", "encode", "lists", "captions", "texts", "measuring", "train"),
        *("route", "distill", "concept_vocabulary", "concept_tagger", "concept_counts"),
    )
    gpus = Gpus.NODE

    def units(self, experiment: Experiment) -> list[str]:
        """List the parts."""
        return scores_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return what drawing and measuring samples reads, the tagger, and the concepts."""
        networks = [*sampling_units(experiment), *tagger_keys(experiment)]
        return list(dict.fromkeys([*networks, *nearest_keys(experiment), CONCEPT_VOCABULARY, CONCEPT_COUNTS]))

    def optional(self, experiment: Experiment) -> list[str]:
        """List the experts."""
        return expert_keys(experiment)

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples, not where they lie."""
        return SAMPLES | space_parts(experiment) | uncounted_captions(experiment)

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover how images are drawn and scored; of the evaluation not its number of images."""
        settings, concepts = evaluation_settings(experiment), experiment.concept_settings
        left_out = ("images", "strategies")
        evaluate = {name: value for name, value in settings["evaluate"].items() if name not in left_out}
        own = {"samples": concepts.samples, "arms": scored_arms(experiment), "tagger": hashed(concepts.tagger)}
        own["perceptual"] = hashed(concepts.perceptual) if concepts.perceptual else None
        part = f"{name_of(key)} of {concepts.units}"
        return settings | {"evaluate": evaluate, "concepts": own, "part": part, "encode": hashed(experiment.encode)}

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return the GPUs of the placement."""
        return gpus_to_sample(experiment)

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate scores and pictures of the most concepts that can be chosen."""
        concepts = experiment.concept_settings
        rows = -(-concepts.per_bin * BINS // concepts.units) * (len(scored_arms(experiment)) + 1)
        return DiskSpace(rows * (ROW_BYTES + SHOWN * values_per_image(experiment)), 0, 2)
