"""Stage concept_scores: samples of some concepts in every arm, scored beside real images of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

import h5py
import numpy as np
import torch
from jaxtyping import Float32, UInt8

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import draws, samples
from hpcddm.data.catalog import blocks_of
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.encoders.perceptual.base import Perceptual
from hpcddm.evaluation.concepts import inputs
from hpcddm.evaluation.concepts.choosing import Choice, Chosen
from hpcddm.evaluation.concepts.ruler import Images, Nearest, Ruler
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
from hpcddm.runs.files import CHOSEN_FILE, PICTURES_FILE, SCORES_FILE
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.unit_keys import CONCEPT_COUNTS, EXTRACTOR, HOME_ARM
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.draw_images import UnitDrawing
from hpcddm.stages.concepts.concept_scores import BINS, SHOWN, nearest_keys, part_of_unit, scored_arms, whole_arms
from hpcddm.stages.training.train import missing_experts
from hpcddm.stages.workload import DECODE_LATENTS, Work, Workload

MOST_COMPARED = 1 << 16
"""Training images, at most, among which the nearest of a sample is looked for."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Draw and score some of the concepts, in every arm whose networks are there."""
    choice = Choice.read(unit.input(CONCEPT_COUNTS, CHOSEN_FILE))
    part, parts = part_of_unit(settings, unit.key)
    own = choice.chosen[len(choice.chosen) * part // parts : len(choice.chosen) * (part + 1) // parts]
    arms, missing = scored_arms(settings), missing_experts(settings, unit.inputs)
    drawing = UnitDrawing(settings, unit)
    scoring = Scoring(settings, unit, drawing.device, choice)
    rows: list[Score] = []
    with atomic.replacing(unit.folder / PICTURES_FILE, durable=False) as staged, h5py.File(staged, "w") as pictures:
        for number, concept in enumerate(own):
            unit.stop_if_requested()
            unit.heartbeat.beat(number, len(own))
            real = drawing.reader.images(concept.real)
            scored = [*scoring.of_real(concept, real)]
            rows += scored
            pictures.create_dataset(f"{REAL_ARM}/{concept.concept}", data=real[:SHOWN])
            # Where the tagger does not tell real images, it would not tell samples.
            if not stands_out(*scored[:2]):
                continue
            rows.append(scoring.of_prompts(concept, real))
            for arm in arms:
                unit.stop_if_requested()
                model = scoring.home_of(concept) if arm == HOME_ARM else arm
                if model is None or f"train/{model}" in missing:
                    continue
                images, usage = _drawn(settings, drawing, concept, model)
                rows.append(scoring.of_samples(concept, arm, model, images, real, usage))
                pictures.create_dataset(f"{model}/{concept.concept}", data=images[:SHOWN])
    content = {"scores": [row.as_json() for row in rows], "chance": scoring.chance.as_json()}
    atomic.write_json(unit.folder / SCORES_FILE, content)
    return Result([SCORES_FILE, PICTURES_FILE], {"concepts": len(own), "arms": arms, "missing_experts": missing})


def work(workload: Workload, key: str) -> list[Work]:
    """List the drawing of as many concepts as can be chosen, in all arms."""
    settings = workload.settings
    concepts = settings.concept_settings
    images = -(-concepts.per_bin * BINS // concepts.units) * concepts.samples
    arms = whole_arms(settings)
    alone = len(scored_arms(settings)) - len(arms)
    of_one = workload.sampling(["expert-0"], images * alone, concepts.samples) if alone else []
    decoding = workload.through_autoencoder(DECODE_LATENTS, images * (len(arms) + alone), concepts.samples)
    return [*workload.sampling(arms, images, concepts.samples), *of_one, *decoding]


def _drawn(settings: Experiment, drawing: UnitDrawing, concept: Chosen, arm: str) -> tuple[Images, np.ndarray | None]:
    """Draw samples of a concept with the conditions of held-out images that have it, in turn.

    Return the weight of every expert, too, over samples and steps; None for one model alone. The noise of a sample
    follows from its number, so that it is the same in all arms, and in runs of one seed.
    """
    count = settings.concept_settings.samples
    first, shown = concept.concept * count, np.resize(concept.real, count)
    drawn, usages = [], []
    for block in blocks_of(range(count), settings.evaluate.batch):
        rows = range(first + block.start, first + block.stop)
        images, usage = drawing.draw(arm, rows, shown[block.start : block.stop])
        drawn.append(images)
        usages.append(usage.mean(0).cpu().numpy())
    of_all = np.sum(usages, axis=0) / count
    return np.concatenate(drawn), of_all if len(of_all) == settings.cluster.experts > 1 else None


class Scoring:
    """Scores images of a concept."""

    def __init__(self, settings: Experiment, unit: Unit, device: torch.device, choice: Choice) -> None:
        self._settings, self._choice, self.chance = settings, choice, ChanceScores()
        self._homes = inputs.homes(settings, unit)
        extractor, pixels = (
            load_ensemble.load_measuring_network(settings, EXTRACTOR, unit.run.unit, device),
            build_classifier.pixels(settings),
        )

        @torch.no_grad()
        def extract(images: Images) -> np.ndarray:
            features: np.ndarray = (
                extractor.features(pixels.to_model(torch.from_numpy(images).to(device))).cpu().numpy()
            )
            return features

        nearest = _nearest(settings, unit) if nearest_keys(settings) else None
        self._ruler = Ruler(inputs.tagger(settings, unit, device), extract, nearest, _pairwise(settings))
        self._reader, self._trained = samples.reader(unit, HELDOUT), samples.reader(unit, TRAIN)

    @cached_property
    def _scores_of_others(self) -> np.ndarray:
        return self._ruler.tagger.scores(self._reader.images(self._choice.others))

    def of_real(self, concept: Chosen, real: Images) -> Iterator[Score]:
        """Score held-out images with the concept, then held-out images without it, then training images with it."""
        scored = replace(self._ruler.score(real, concept.concept, REAL_ARM), different=concept.different)
        yield self._ruler.detailed(scored, real, None)
        others = np.delete(self._scores_of_others, concept.having, axis=0)
        yield self._ruler.scored(others, concept.concept, OTHER_ARM)
        if concept.seen:
            yield self._ruler.score(self._trained.images(concept.seen), concept.concept, TRAIN_ARM)

    def home_of(self, concept: Chosen) -> str | None:
        """Return the home expert of a concept; None for one that no training sample has."""
        home = self._homes[concept.concept]
        return None if home is None else f"expert-{home:02d}"

    def of_prompts(self, concept: Chosen, real: Images) -> Score:
        """Score the real images whose captions the samples have, as often as these have them."""
        scores = self._ruler.tagger.scores(real[: self._settings.concept_settings.samples])
        scores = scores[np.resize(np.arange(len(scores)), self._settings.concept_settings.samples)]
        self._add_chance(concept, PROMPT_ARM, scores)
        return self._ruler.scored(scores, concept.concept, PROMPT_ARM)

    def of_samples(
        self,
        concept: Chosen,
        arm: str,
        model: str,
        images: Images,
        real: UInt8[np.ndarray, "m h w c"],
        usage: np.ndarray | None,
    ) -> Score:
        """Score samples by a model for an arm; of an expert alone only by the tagger."""
        scores = self._ruler.tagger.scores(images)
        self._add_chance(concept, model, scores)
        scored = self._ruler.scored(scores, concept.concept, arm)
        home = self._homes[concept.concept]
        if usage is not None and home is not None:
            scored = replace(scored, home_usage=float(usage[home]))
        return self._ruler.detailed(scored, images, real) if arm in whole_arms(self._settings) else scored

    def _add_chance(self, concept: Chosen, model: str, scores: Float32[np.ndarray, "n v"]) -> None:
        """Add the scores for the chosen concepts that captions do not name; the captions are the real ones' in turn."""
        in_captions = np.zeros((len(scores), len(self._choice.chosen)), dtype=bool)
        for place in range(len(scores)):
            in_captions[place, concept.in_captions[place % len(concept.in_captions)]] = True
        self.chance.add(model, scores[:, [own.concept for own in self._choice.chosen]], in_captions)


def _nearest(settings: Experiment, unit: Unit) -> Nearest:
    """Read the features of the training images, or of some at random."""
    catalog = samples.catalog(unit, TRAIN)
    numbers = np.sort(draws.chosen(settings.concept_settings.seed, "nearest", len(catalog), MOST_COMPARED))
    encoder = variants.create(ImageEncoder, settings.encode.encoder)
    return Nearest(samples.features(catalog).gather(numbers).astype(np.float32), encoder.encode)


def _pairwise(settings: Experiment) -> Callable[[Images], float] | None:
    """Return the mean perceptual distance of the pairs of some images; None where the experiment wants none."""
    own = settings.concept_settings.perceptual
    if own is None:
        return None
    perceptual = variants.create(Perceptual, own)
    return lambda images: perceptual.diversity(perceptual.features(images))
