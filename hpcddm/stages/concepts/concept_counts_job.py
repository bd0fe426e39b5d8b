"""Stage concept_counts: adds the ranges up, and chooses the concepts that are scored."""

from dataclasses import asdict

import numpy as np
from jaxtyping import Int64

from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.evaluation.concepts import concept_selection, stage_outputs
from hpcddm.evaluation.concepts.concept_selection import ConceptSelection, SelectedConcept
from hpcddm.evaluation.concepts.counting import Counts
from hpcddm.evaluation.concepts.presence import TEXT, Pairs, Presence
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import OTHER_IMAGES, REAL_IMAGES, TRAINED_IMAGES
from hpcddm.runs.files import CHOSEN_FILE, COUNTS_FILE
from hpcddm.runs.ranges import HELDOUT, TRAIN

OTHERS = 512
"""Maximum number of held-out images; images without a concept give its score by chance."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Count the concepts of the training samples, and choose some that held-out samples have, too."""
    presences = {split: stage_outputs.presence(experiment, unit, split) for split in (TRAIN, HELDOUT)}
    counts = _counts(experiment, unit, presences[TRAIN])
    kind = experiment.concept_settings.frequency
    sizes = {split: len(run_samples.open_unit_catalog(unit, split)) for split in presences}
    # By captions, not by what the tagger sees in captioned images: real images would be chosen by the score that they
    # calibrate.
    having = presences[HELDOUT].gather(sizes[HELDOUT], TEXT, unit.stop_if_requested)
    captions = stage_outputs.caption_hashes(unit, HELDOUT)[having.samples]
    distinct = np.unique(np.stack([having.concepts, captions]), axis=1)
    different = np.bincount(distinct[0], minlength=presences[HELDOUT].size)
    bin_of = concept_selection.select_concepts(counts.table(kind).sum(1), different, experiment.concept_settings)
    chosen = np.array([*bin_of], dtype=np.int64)
    seen = presences[TRAIN].gather(sizes[TRAIN], TEXT, unit.stop_if_requested, chosen)
    choice = _choice(experiment, sizes[HELDOUT], bin_of, different, having, seen)
    counts.write(unit.folder / COUNTS_FILE)
    atomic.write_json(unit.folder / CHOSEN_FILE, asdict(choice))
    print(f"{len(choice.chosen)} of {presences[TRAIN].size} concepts are scored", flush=True)
    results = {"concepts": presences[TRAIN].size, "chosen": len(choice.chosen)}
    return Result([COUNTS_FILE, CHOSEN_FILE], results)


def _counts(experiment: Experiment, unit: Unit, presence: Presence) -> Counts:
    catalog = run_samples.open_unit_catalog(unit, TRAIN)
    counts, clusters = Counts.zeros(presence.size, experiment.cluster.experts), run_samples.clusters(catalog)
    for block, pairs in presence.blocks(len(catalog)):
        unit.stop_if_requested()
        counts.add(pairs, clusters.gather(block))
        unit.heartbeat.beat(block.stop, len(catalog))
    return counts


def _choice(
    experiment: Experiment,
    heldout: int,
    bin_of: dict[int, int],
    different: Int64[np.ndarray, " v"],
    pairs: Pairs,
    seen: Pairs,
) -> ConceptSelection:
    """Choose the real images of each scored concept, and the images that give its score by chance."""
    own = experiment.concept_settings
    others = np.sort(keyed.random_subset(own.seed, OTHER_IMAGES, heldout, OTHERS))
    chosen, in_captions = [], _in_captions(pairs, [*bin_of])
    for concept, own_bin in bin_of.items():
        having, trained = (each.samples[each.concepts == concept] for each in (pairs, seen))
        real = having[keyed.random_subset(own.seed, REAL_IMAGES.format(concept=concept), len(having), own.max_real)]
        stream = TRAINED_IMAGES.format(concept=concept)
        shown = trained[keyed.random_subset(own.seed, stream, len(trained), own.samples)]
        places = np.flatnonzero(np.isin(others, having)).tolist()
        count = min(int(different[concept]), len(real))
        named = [in_captions[number] for number in real.tolist()]
        chosen.append(SelectedConcept(concept, own_bin, real.tolist(), count, places, shown.tolist(), named))
    return ConceptSelection(others.tolist(), chosen)


def _in_captions(pairs: Pairs, chosen: list[int]) -> dict[int, list[int]]:
    """Return the places of the chosen concepts that samples have, by sample."""
    places, of_samples = {concept: place for place, concept in enumerate(chosen)}, dict[int, list[int]]()
    wanted = np.isin(pairs.concepts, chosen)
    for number, concept in zip(pairs.samples[wanted].tolist(), pairs.concepts[wanted].tolist(), strict=True):
        of_samples.setdefault(number, []).append(places[concept])
    return of_samples
