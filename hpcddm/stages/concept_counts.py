"""Stage concept_counts: adds the ranges up, describes the long tail, and chooses the concepts that are scored."""

import numpy as np
from jaxtyping import Int64

from hpcddm.concepts import choosing, inputs
from hpcddm.concepts.choosing import Choice, Chosen
from hpcddm.concepts.counting import Counts
from hpcddm.concepts.presence import Presence
from hpcddm.concepts.summary import summary
from hpcddm.config import Experiment
from hpcddm.data import draws, samples
from hpcddm.pipeline.concept_counts import CHOSEN_FILE, COUNTS_FILE, SUMMARY_FILE
from hpcddm.pipeline.ranges import HELDOUT, TRAIN
from hpcddm.rundir import atomic
from hpcddm.runtime.unit import Result, Unit

OTHERS = 512
"""Held-out images, at most, among which those without a concept tell what its score is by chance."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Count the concepts of the training samples, and choose some that held-out samples have, too."""
    presences = {split: inputs.presence(settings, unit, split) for split in (TRAIN, HELDOUT)}
    counts = _counts(settings, unit, presences[TRAIN])
    kind = settings.concept_settings.frequency
    numbers, concepts = _heldout(unit, presences[HELDOUT], kind)
    heldout = np.bincount(concepts, minlength=presences[HELDOUT].size)
    bin_of = choosing.choose(counts.table(kind).sum(1), heldout, settings.concept_settings)
    choice = _choice(settings, len(samples.catalog(unit, HELDOUT)), bin_of, numbers, concepts)
    described = summary(counts, kind)
    counts.write(unit.folder / COUNTS_FILE)
    atomic.write_json(unit.folder / SUMMARY_FILE, described)
    atomic.write_json(unit.folder / CHOSEN_FILE, choice.as_json())
    print(f"{len(choice.chosen)} of {len(heldout)} concepts are scored", flush=True)
    results = {"concepts": len(heldout), "chosen": len(choice.chosen)}
    return Result([COUNTS_FILE, SUMMARY_FILE, CHOSEN_FILE], results)


def _counts(settings: Experiment, unit: Unit, presence: Presence) -> Counts:
    catalog = samples.catalog(unit, TRAIN)
    counts, clusters = Counts.zeros(presence.size, settings.cluster.experts), samples.clusters(catalog)
    for block, pairs in presence.blocks(len(catalog)):
        unit.stop_if_requested()
        counts.add(pairs, clusters.gather(block))
        unit.heartbeat.beat(block.stop, len(catalog))
    return counts


def _heldout(unit: Unit, presence: Presence, kind: str) -> tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " m"]]:
    """Return all pairs of a held-out sample and a concept that it has."""
    numbers, concepts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for block, pairs in presence.blocks(len(samples.catalog(unit, HELDOUT))):
        numbers.append(pairs[kind].samples + block.start)
        concepts.append(pairs[kind].concepts)
    return np.concatenate(numbers), np.concatenate(concepts)


def _choice(
    settings: Experiment,
    heldout: int,
    bin_of: dict[int, int],
    numbers: Int64[np.ndarray, " m"],
    concepts: Int64[np.ndarray, " m"],
) -> Choice:
    """Choose the real images of each concept that is scored, and those that tell its score by chance."""
    own = settings.concept_settings
    others = np.sort(draws.chosen(own.seed, "concepts/others", heldout, OTHERS))
    chosen = []
    for concept, own_bin in bin_of.items():
        having = numbers[concepts == concept]
        real = having[draws.chosen(own.seed, f"concepts/real/{concept}", len(having), own.most_real)]
        chosen.append(Chosen(concept, own_bin, real.tolist(), np.flatnonzero(np.isin(others, having)).tolist()))
    return Choice(others.tolist(), chosen)
