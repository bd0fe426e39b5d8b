"""Stage concept_counts: adds the ranges up, and chooses the concepts that are scored."""

import numpy as np
from jaxtyping import Int64

from hpcddm.config.experiment import Experiment
from hpcddm.data import draws, samples
from hpcddm.evaluation.concepts import choosing, inputs
from hpcddm.evaluation.concepts.choosing import Choice, Chosen
from hpcddm.evaluation.concepts.counting import Counts
from hpcddm.evaluation.concepts.presence import TEXT, Presence
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import CHOSEN_FILE, COUNTS_FILE
from hpcddm.runs.ranges import HELDOUT, TRAIN

OTHERS = 512
"""Held-out images, at most, among which those without a concept tell what its score is by chance."""


SamplesWithConcepts = tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " m"]]
"""Numbers of samples, and beside each a concept that it has."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Count the concepts of the training samples, and choose some that held-out samples have, too."""
    presences = {split: inputs.presence(settings, unit, split) for split in (TRAIN, HELDOUT)}
    counts = _counts(settings, unit, presences[TRAIN])
    kind = settings.concept_settings.frequency
    numbers, concepts = _pairs(unit, presences[HELDOUT], HELDOUT)
    captions = inputs.caption_hashes(unit, HELDOUT)[numbers]
    different = np.bincount(np.unique(np.stack([concepts, captions]), axis=1)[0], minlength=presences[HELDOUT].size)
    bin_of = choosing.choose(counts.table(kind).sum(1), different, settings.concept_settings)
    chosen = np.array([*bin_of], dtype=np.int64)
    seen = _pairs(unit, presences[TRAIN], TRAIN, chosen)
    choice = _choice(settings, len(samples.catalog(unit, HELDOUT)), bin_of, different, (numbers, concepts), seen)
    counts.write(unit.folder / COUNTS_FILE)
    atomic.write_json(unit.folder / CHOSEN_FILE, choice.as_json())
    print(f"{len(choice.chosen)} of {presences[TRAIN].size} concepts are scored", flush=True)
    results = {"concepts": presences[TRAIN].size, "chosen": len(choice.chosen)}
    return Result([COUNTS_FILE, CHOSEN_FILE], results)


def _counts(settings: Experiment, unit: Unit, presence: Presence) -> Counts:
    catalog = samples.catalog(unit, TRAIN)
    counts, clusters = Counts.zeros(presence.size, settings.cluster.experts), samples.clusters(catalog)
    for block, pairs in presence.blocks(len(catalog)):
        unit.stop_if_requested()
        counts.add(pairs, clusters.gather(block))
        unit.heartbeat.beat(block.stop, len(catalog))
    return counts


def _pairs(
    unit: Unit, presence: Presence, split: str, wanted: Int64[np.ndarray, " c"] | None = None
) -> SamplesWithConcepts:
    """Return all pairs of a sample and a concept that its caption names, or its image shows where there are none.

    Not by what the tagger sees in captioned images: real images would be chosen by the score that they calibrate.
    wanted: concepts, by default all.
    """
    numbers, concepts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for block, pairs in presence.blocks(len(samples.catalog(unit, split))):
        unit.stop_if_requested()
        own = np.ones(len(pairs[TEXT].concepts), bool) if wanted is None else np.isin(pairs[TEXT].concepts, wanted)
        numbers.append(pairs[TEXT].samples[own] + block.start)
        concepts.append(pairs[TEXT].concepts[own])
    return np.concatenate(numbers), np.concatenate(concepts)


def _choice(
    settings: Experiment,
    heldout: int,
    bin_of: dict[int, int],
    different: Int64[np.ndarray, " v"],
    pairs: SamplesWithConcepts,
    seen: SamplesWithConcepts,
) -> Choice:
    """Choose the real images of each concept that is scored, and those that tell its score by chance."""
    own = settings.concept_settings
    others = np.sort(draws.chosen(own.seed, "concepts/others", heldout, OTHERS))
    chosen, in_captions = [], _in_captions(pairs, [*bin_of])
    for concept, own_bin in bin_of.items():
        having, trained = (numbers[concepts == concept] for numbers, concepts in (pairs, seen))
        real = having[draws.chosen(own.seed, f"concepts/real/{concept}", len(having), own.most_real)]
        shown = trained[draws.chosen(own.seed, f"concepts/seen/{concept}", len(trained), own.samples)]
        places = np.flatnonzero(np.isin(others, having)).tolist()
        count = min(int(different[concept]), len(real))
        named = [in_captions[number] for number in real.tolist()]
        chosen.append(Chosen(concept, own_bin, real.tolist(), count, places, shown.tolist(), named))
    return Choice(others.tolist(), chosen)


def _in_captions(pairs: SamplesWithConcepts, chosen: list[int]) -> dict[int, list[int]]:
    """Return the places of the chosen concepts that samples have, by sample."""
    numbers, concepts = pairs
    places, of_samples = {concept: place for place, concept in enumerate(chosen)}, dict[int, list[int]]()
    wanted = np.isin(concepts, chosen)
    for number, concept in zip(numbers[wanted].tolist(), concepts[wanted].tolist(), strict=True):
        of_samples.setdefault(number, []).append(places[concept])
    return of_samples
