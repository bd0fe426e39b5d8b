"""Stage concept_scores: samples of some concepts in every arm, scored beside real images of them.

Its unit alignment: errors of the experts that are asked beside the others, and how far their data are.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import h5py
import numpy as np
import torch
from jaxtyping import Float32, UInt8

from hpcddm.clustering.base import Clustering
from hpcddm.clustering.partition import FeaturePartition
from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import evaluation_set, run_samples
from hpcddm.data.catalog import split_into_blocks
from hpcddm.encoders.image.base import ImageEncoder, SampleEncoder
from hpcddm.encoders.perceptual.base import Perceptual
from hpcddm.evaluation.concepts import stage_outputs
from hpcddm.evaluation.concepts.concept_scorer import ConceptScorer, Images, NearestTrainingImages
from hpcddm.evaluation.concepts.concept_selection import ConceptSelection, SelectedConcept
from hpcddm.evaluation.concepts.scores import (
    OTHER_ARM,
    PROMPT_ARM,
    REAL_ARM,
    TRAIN_ARM,
    ChanceScores,
    Score,
    stands_out,
)
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_classifier
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import ALIGNMENT_IMAGES, ALIGNMENT_NOISE, NEAREST_IMAGES
from hpcddm.runs.files import ALIGNMENT_FILE, CHOSEN_FILE, PARTITION, PICTURES_FILE, SCORES_FILE
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.unit_keys import CLUSTER, CONCEPT_ALIGNMENT, CONCEPT_COUNTS, EXTRACTOR, HOME_ARM
from hpcddm.sampling import alignment, load_ensemble, nfe
from hpcddm.sampling.alignment import LevelErrors, RecordingVelocity
from hpcddm.sampling.draw_images import UnitSampler
from hpcddm.sampling.ensemble import NetworkEvaluations
from hpcddm.sampling.sampler import sample, time_grid
from hpcddm.stages.concepts.concept_scores import BINS, SHOWN, nearest_keys, part_of_unit, scored_arms, whole_arms
from hpcddm.stages.evaluation.draw import strategy_labels
from hpcddm.stages.progress import advance
from hpcddm.stages.training.train import missing_experts
from hpcddm.stages.workload import DECODE_LATENTS, Work, Workload
from hpcddm.training.training_inputs import x0_of

MAX_COMPARED = 1 << 16
"""Training images, at most, among which the nearest of a sample is looked for."""
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Times of the linear path at which every expert is asked about noisy held-out images."""
REAL_OF_CONCEPT, MAX_REAL, DRAWN = 4, 512, 64
"""Held-out images of each scored concept, and of all, at most; samples that are followed while they are drawn."""
IMAGES_AT_ONCE = 64


def run(experiment: Experiment, unit: Unit) -> Result:
    """Score some of the concepts, or measure the alignment."""
    return _align(experiment, unit) if unit.key == CONCEPT_ALIGNMENT else _score(experiment, unit)


def work(workload: Workload, key: str) -> list[Work]:
    """List the work of scoring, or of measuring the alignment."""
    return _work_of_alignment(workload) if key == CONCEPT_ALIGNMENT else _work_of_scores(workload)


def _score(experiment: Experiment, unit: Unit) -> Result:
    """Draw and score some of the concepts, in every arm whose networks exist."""
    choice = ConceptSelection.read(unit.input(CONCEPT_COUNTS, CHOSEN_FILE))
    part, parts = part_of_unit(experiment, unit.key)
    own = choice.chosen[len(choice.chosen) * part // parts : len(choice.chosen) * (part + 1) // parts]
    arms, missing = scored_arms(experiment), missing_experts(experiment, unit.inputs)
    drawing = UnitSampler(experiment, unit)
    scoring = Scoring(experiment, unit, drawing.device, choice)
    rows: list[Score] = []
    with atomic.replacing(unit.folder / PICTURES_FILE, durable=False) as staged, h5py.File(staged, "w") as pictures:
        for number, concept in enumerate(own):
            advance(unit, number, len(own))
            real = drawing.reader.images(concept.real)
            scored = [*scoring.of_real(concept, real)]
            rows += scored
            pictures.create_dataset(f"{REAL_ARM}/{concept.concept}", data=real[:SHOWN])
            # A tagger that does not recognise real images would not recognise samples.
            if not stands_out(*scored[:2]):
                continue
            rows.append(scoring.of_prompts(concept, real))
            for arm in arms:
                unit.stop_if_requested()
                model = scoring.home_of(concept) if arm == HOME_ARM else arm
                if model is None or f"train/{model}" in missing:
                    continue
                images, usage = _draw_concept(experiment, drawing, concept, model)
                rows.append(scoring.of_samples(concept, arm, model, images, real, usage))
                pictures.create_dataset(f"{model}/{concept.concept}", data=images[:SHOWN])
    content = {"scores": [row.as_json() for row in rows], "chance": scoring.chance.as_json()}
    atomic.write_json(unit.folder / SCORES_FILE, content)
    return Result([SCORES_FILE, PICTURES_FILE], {"concepts": len(own), "arms": arms, "missing_experts": missing})


def _work_of_scores(workload: Workload) -> list[Work]:
    """List the drawing of as many concepts as can be chosen, in all arms."""
    experiment = workload.experiment
    concepts = experiment.concept_settings
    images = -(-concepts.per_bin * BINS // concepts.units) * concepts.samples
    arms = whole_arms(experiment)
    alone = len(scored_arms(experiment)) - len(arms)
    of_one = workload.sampling(["expert-0"], images * alone, concepts.samples, nfe.of_arm) if alone else []
    decoding = workload.through_autoencoder(DECODE_LATENTS, images * (len(arms) + alone), concepts.samples)
    return [*workload.sampling(arms, images, concepts.samples, nfe.of_arm), *of_one, *decoding]


def _draw_concept(
    experiment: Experiment, drawing: UnitSampler, concept: SelectedConcept, arm: str
) -> tuple[Images, np.ndarray | None]:
    """Draw samples of a concept with the conditions of held-out images that have it, in turn.

    Return the weight of every expert, too, over samples and steps; None for one model alone. The noise of a sample
    follows from its number, so that it is the same in all arms, and in runs of one seed.
    """
    count = experiment.concept_settings.samples
    first, shown = concept.concept * count, np.resize(concept.real, count)
    drawn, usages = [], []
    for block in split_into_blocks(range(count), experiment.evaluate.batch):
        rows = range(first + block.start, first + block.stop)
        images, usage = drawing.draw(arm, rows, shown[block.start : block.stop])
        drawn.append(images)
        usages.append(usage.mean(0).cpu().numpy())
    of_all = np.sum(usages, axis=0) / count
    return np.concatenate(drawn), of_all if len(of_all) == experiment.cluster.experts > 1 else None


class Scoring:
    """Scores images of a concept."""

    def __init__(self, experiment: Experiment, unit: Unit, device: torch.device, choice: ConceptSelection) -> None:
        self._experiment, self._choice, self.chance = experiment, choice, ChanceScores()
        self._homes = stage_outputs.homes(experiment, unit)
        extractor = load_ensemble.load_evaluator(experiment, EXTRACTOR, unit.run.unit, device)
        pixels = build_classifier.pixels(experiment)

        @torch.no_grad()
        def extract(images: Images) -> np.ndarray:
            features: np.ndarray = (
                extractor.features(pixels.to_model(torch.from_numpy(images).to(device))).cpu().numpy()
            )
            return features

        nearest = _nearest(experiment, unit) if nearest_keys(experiment) else None
        tagger = stage_outputs.tagger(experiment, unit, device)
        self._ruler = ConceptScorer(tagger, extract, nearest, _pairwise(experiment))
        self._reader, self._trained = run_samples.open_reader(unit, HELDOUT), run_samples.open_reader(unit, TRAIN)

    @cached_property
    def _scores_of_others(self) -> np.ndarray:
        return self._ruler.tagger.scores(self._reader.images(self._choice.others))

    def of_real(self, concept: SelectedConcept, real: Images) -> Iterator[Score]:
        """Score held-out images with the concept, then held-out images without it, then training images with it."""
        scored = replace(self._ruler.score(real, concept.concept, REAL_ARM), different=concept.different)
        yield self._ruler.with_distances(scored, real, None)
        others = np.delete(self._scores_of_others, concept.having, axis=0)
        yield self._ruler.score_from(others, concept.concept, OTHER_ARM)
        if concept.seen:
            yield self._ruler.score(self._trained.images(concept.seen), concept.concept, TRAIN_ARM)

    def home_of(self, concept: SelectedConcept) -> str | None:
        """Return the home expert of a concept; None for one that no training sample has."""
        home = self._homes[concept.concept]
        return None if home is None else f"expert-{home:02d}"

    def of_prompts(self, concept: SelectedConcept, real: Images) -> Score:
        """Score the real images whose captions the samples have, as often as these have them."""
        scores = self._ruler.tagger.scores(real[: self._experiment.concept_settings.samples])
        scores = scores[np.resize(np.arange(len(scores)), self._experiment.concept_settings.samples)]
        self._add_chance(concept, PROMPT_ARM, scores)
        return self._ruler.score_from(scores, concept.concept, PROMPT_ARM)

    def of_samples(
        self,
        concept: SelectedConcept,
        arm: str,
        model: str,
        images: Images,
        real: UInt8[np.ndarray, "m h w c"],
        usage: np.ndarray | None,
    ) -> Score:
        """Score samples by a model for an arm; of an expert alone only by the tagger."""
        scores = self._ruler.tagger.scores(images)
        self._add_chance(concept, model, scores)
        scored = self._ruler.score_from(scores, concept.concept, arm)
        home = self._homes[concept.concept]
        if usage is not None and home is not None:
            scored = replace(scored, home_usage=float(usage[home]))
        return self._ruler.with_distances(scored, images, real) if arm in whole_arms(self._experiment) else scored

    def _add_chance(self, concept: SelectedConcept, model: str, scores: Float32[np.ndarray, "n v"]) -> None:
        """Add the scores for the chosen concepts that captions do not name; the captions are the real ones' in turn."""
        in_captions = np.zeros((len(scores), len(self._choice.chosen)), dtype=bool)
        for place in range(len(scores)):
            in_captions[place, concept.in_captions[place % len(concept.in_captions)]] = True
        self.chance.add(model, scores[:, [own.concept for own in self._choice.chosen]], in_captions)


def _nearest(experiment: Experiment, unit: Unit) -> NearestTrainingImages:
    """Read the features of the training images, or of some at random."""
    catalog = run_samples.open_unit_catalog(unit, TRAIN)
    numbers = np.sort(keyed.random_subset(experiment.concept_settings.seed, NEAREST_IMAGES, len(catalog), MAX_COMPARED))
    encoder = variants.create(ImageEncoder, experiment.encode.encoder)
    return NearestTrainingImages(run_samples.features(catalog).gather(numbers).astype(np.float32), encoder.encode)


def _pairwise(experiment: Experiment) -> Callable[[Images], float] | None:
    """Return the mean perceptual distance of the pairs of some images; None where the experiment wants none."""
    own = experiment.concept_settings.perceptual
    if own is None:
        return None
    perceptual = variants.create(Perceptual, own)
    return lambda images: perceptual.diversity(perceptual.features(images))


def _align(experiment: Experiment, unit: Unit) -> Result:
    """Measure errors and distances."""
    choice = ConceptSelection.read(unit.input(CONCEPT_COUNTS, CHOSEN_FILE))
    drawing = UnitSampler(experiment, unit)
    numbers = np.unique([number for concept in choice.chosen for number in concept.real[:REAL_OF_CONCEPT]])[:MAX_REAL]
    if not len(numbers) or None in drawing.ensemble.experts:
        reason = "no concept is scored" if not len(numbers) else "some experts are missing"
        atomic.write_json(unit.folder / ALIGNMENT_FILE, {"left_out": reason})
        return Result([ALIGNMENT_FILE], {"left_out": reason})
    errors = _errors(experiment, unit, drawing, numbers)
    content = {"levels": LEVELS, "errors": errors, **_distances(experiment, unit, drawing)}
    atomic.write_json(unit.folder / ALIGNMENT_FILE, content)
    return Result([ALIGNMENT_FILE], {"images": len(numbers), "samples": DRAWN})


def _work_of_alignment(workload: Workload) -> list[Work]:
    """List all experts' run on noisy images, and the drawing of samples by every strategy."""
    experiment = workload.experiment
    every = NetworkEvaluations(experiment.cluster.experts * len(LEVELS), len(LEVELS))
    asked = workload.expert_work(MAX_REAL, IMAGES_AT_ONCE, every)
    return [*asked, *workload.sampling(strategy_labels(experiment), DRAWN, DRAWN, nfe.of_arm)]


def _errors(experiment: Experiment, unit: Unit, drawing: UnitSampler, numbers: np.ndarray) -> dict[str, list[float]]:
    """Return errors by level."""
    space, device = drawing.space, drawing.device
    read = x0_of(experiment, unit, HELDOUT, drawing.reader, space, ALIGNMENT_IMAGES)
    field = drawing.ensemble.field("full", experiment.evaluate)
    experts = [expert for expert in drawing.ensemble.experts if expert is not None]
    measured: dict[str, list[float]] = {}
    for done, level in enumerate(LEVELS):
        unit.heartbeat.beat(done, len(LEVELS) + len(strategy_labels(experiment)))
        stream, parts = ALIGNMENT_NOISE.format(level=level), []
        for block in split_into_blocks(numbers, IMAGES_AT_ONCE):
            unit.stop_if_requested()
            x0, asked = read(block).to(device), drawing.condition.of_samples(drawing.reader, block).to(device)
            noise = keyed.gaussian(experiment.seed, stream, block.tolist(), space.shape).to(device)
            parts.append(alignment.level_errors(experts, field, x0, noise, asked, level))
        joined = LevelErrors(*(torch.cat([getattr(part, name) for part in parts]) for name in vars(parts[0])))
        for name, value in alignment.summarise_errors(joined).items():
            measured.setdefault(name, []).append(value)
    return measured


def _distances(experiment: Experiment, unit: Unit, drawing: UnitSampler) -> dict[str, Any]:
    """Follow samples of every strategy, and compare their estimates of x0 with clusters; or give a reason not to."""
    distances_of = _distances_of(experiment, unit)
    if distances_of is None:
        return {"distances": None, "reason": "the partition compares no features of images"}
    evaluate, space = experiment.evaluate, drawing.space
    shown = evaluation_set.condition_samples(unit, experiment)[:DRAWN]
    asked, clusters = drawing.conditions_and_clusters(shown)
    arms: dict[str, dict[str, list[float]]] = {}
    labels = strategy_labels(experiment)
    for number, arm in enumerate(labels):
        advance(unit, len(LEVELS) + number, len(LEVELS) + len(labels))
        recorded = RecordingVelocity(drawing.ensemble.field(arm, evaluate, clusters))
        sample(recorded, experiment.seed, range(len(shown)), asked, space, evaluate)
        for estimate, weights in zip(recorded.estimates, recorded.weights, strict=True):
            distances = torch.from_numpy(distances_of(space.to_images(space.finish(estimate))))
            for name, value in alignment.used_cluster_distance(weights.cpu(), distances).items():
                arms.setdefault(arm, {}).setdefault(name, []).append(value)
    return {"times": time_grid(evaluate.steps, evaluate.shift)[:-1], "distances": arms}


def _distances_of(experiment: Experiment, unit: Unit) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return a function from images to their distances from every cluster; None where the partition has none."""
    clustering = variants.create(Clustering, experiment.cluster.clustering)
    partition = clustering.read(unit.input(CLUSTER, PARTITION), experiment)
    if not isinstance(partition, FeaturePartition) or not experiment.encode.encoder.reads_images:
        return None
    encoder = variants.create(SampleEncoder, experiment.encode.encoder)
    if not isinstance(encoder, ImageEncoder):
        return None
    return lambda images: np.sqrt(partition.distances_features(encoder.encode(images)))
