"""Stage concepts: the table of all concepts, fits of quality to frequency, advice, and a page about them."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.data import samples
from hpcddm.data.catalog import TEXTS_AT_ONCE, blocks_of
from hpcddm.errors import require
from hpcddm.evaluation.concepts import analysis, inputs, table
from hpcddm.evaluation.concepts.advice import MOST_MOVED, Advice, advise, moved
from hpcddm.evaluation.concepts.choosing import Choice
from hpcddm.evaluation.concepts.content import Alignment, Scores
from hpcddm.evaluation.concepts.counting import Counts
from hpcddm.evaluation.concepts.presence import Pairs
from hpcddm.evaluation.concepts.scores import ChanceScores, Score, by_concept
from hpcddm.evaluation.concepts.table import Row
from hpcddm.evaluation.report import concept_pictures, concepts_page
from hpcddm.evaluation.report.concept_facts import ConceptFacts
from hpcddm.files import atomic, reading
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import (
    ALIGNMENT_FILE,
    CHOSEN_FILE,
    CONCEPTS_FILE,
    CONCEPTS_PAGE,
    CONCEPTS_PARQUET,
    CONCEPTS_TABLE,
    COUNTS_FILE,
    PICTURES_FILE,
    PROPOSAL_FILE,
    SCORES_FILE,
    SHOWN_FILE,
)
from hpcddm.runs.ranges import HELDOUT, SPLITS, TRAIN
from hpcddm.runs.unit_keys import CONCEPT_ALIGNMENT, CONCEPT_COUNTS, HOME_ARM, MONOLITH_ARM
from hpcddm.stages.concepts.concept_scores import concept_strategies


def run(settings: Experiment, unit: Unit) -> Result:
    """Merge counts and scores, fit, and advise."""
    kind, arm = settings.concept_settings.frequency, concept_strategies(settings)[0]
    counts = Counts.read(unit.input(CONCEPT_COUNTS, COUNTS_FILE))
    choice = Choice.read(unit.input(CONCEPT_COUNTS, CHOSEN_FILE))
    scores = by_concept(_scores(settings, unit, choice))
    rows = table.rows(inputs.vocabulary(unit), counts, kind, scores, _captions(unit, choice))
    dense = MONOLITH_ARM if settings.monolith.enabled else None
    advice = advise(rows, counts.samples.tolist(), arm, dense)
    content = {
        "experiment": settings.name,
        "seed": settings.seed,
        "settings": hashed(settings.concept_settings),
        "frequency": kind,
        "arm": arm,
        "dense": dense,
        "concepts": [row.as_json() for row in rows],
        "alignment": _alignment(unit),
        "advice": advice.as_json(),
    }
    content["proposal"] = _propose(settings, unit, rows, advice)
    content["fits"] = analysis.fits([content])
    atomic.write_json(unit.folder / CONCEPTS_FILE, content)
    tables = table.write(unit.folder / CONCEPTS_TABLE, unit.folder / CONCEPTS_PARQUET, rows)
    _show(unit, ConceptFacts(content))
    return Result(
        [CONCEPTS_FILE, PROPOSAL_FILE, *(path.name for path in tables), SHOWN_FILE, CONCEPTS_PAGE],
        {"concepts": len(rows), "proposal": content["proposal"]},
    )


def _alignment(unit: Unit) -> dict[str, Any] | None:
    """Read what is known of the experts that are asked."""
    if CONCEPT_ALIGNMENT not in unit.inputs:
        return None
    return reading.need_mapping(unit.input(CONCEPT_ALIGNMENT, ALIGNMENT_FILE), Alignment)


def _show(unit: Unit, facts: ConceptFacts) -> None:
    """Write the page, and its pictures for the report."""
    files = [unit.input(key, PICTURES_FILE) for key in sorted(unit.inputs_of("concept_scores"))]
    shown = concept_pictures.gather(files, facts.pictured())
    concept_pictures.write(shown, unit.folder / SHOWN_FILE)
    concepts_page.write(facts, shown, unit.folder / CONCEPTS_PAGE)


def _scores(settings: Experiment, unit: Unit, choice: Choice) -> Iterator[Score]:
    """Read the scores of all units, in the order of the concepts, each with its chance."""
    keys = sorted(unit.inputs_of("concept_scores"))
    files = [unit.input(key, SCORES_FILE) for key in keys]
    contents: list[Scores] = [reading.need_json(file, Scores) for file in files]
    chance, homes = ChanceScores(), inputs.homes(settings, unit)
    places = {own.concept: place for place, own in enumerate(choice.chosen)}
    for file, content in zip(files, contents, strict=True):
        sizes = {len(part) for both in content.chance.values() for part in both}
        is_whole = sizes <= {len(places)} and {score.concept for score in content.scores} <= places.keys()
        require(is_whole, f"{file}: scores other concepts than were chosen; submit again with --redo concept_scores")
        chance.merge(content.chance)
    for score in (score for content in contents for score in content.scores):
        home = homes[score.concept]
        model = f"expert-{home:02d}" if score.arm == HOME_ARM and home is not None else score.arm
        yield replace(score, chance=chance.of(model, places[score.concept]))


def _captions(unit: Unit, choice: Choice) -> dict[int, list[str]]:
    """Return hashes of the captions of the held-out images by which concepts are scored."""
    hashes = inputs.caption_hashes(unit, HELDOUT)
    return {own.concept: [f"{caption:016x}" for caption in hashes[own.real].view(np.uint64)] for own in choice.chosen}


def _propose(settings: Experiment, unit: Unit, rows: Sequence[Row], advice: Advice) -> dict[str, Any]:
    """Write the clusters of all samples with those of the worst drawn concepts moved, as the clustering `file` reads.

    Returns how many are moved, by split.
    """
    homes = {concept: home for concept in advice.worst if (home := rows[concept].home) is not None}
    counts = {}
    with (
        atomic.replacing(unit.folder / PROPOSAL_FILE, durable=False) as staged,
        open(staged, "w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["key", "cluster"])
        for split in SPLITS:
            catalog = samples.catalog(unit, split)
            clusters = samples.clusters(catalog).gather(range(len(catalog))).astype(np.int64)
            pairs = _pairs(settings, unit, split, list(homes))
            # What goes is decided by the training samples; held-out ones follow.
            most = round(MOST_MOVED * len(clusters)) if split == TRAIN else len(clusters)
            proposed, taken = moved(pairs, clusters, homes, most)
            homes = {concept: homes[concept] for concept in taken}
            counts[split] = int((proposed != clusters).sum())
            for block in blocks_of(range(len(catalog)), TEXTS_AT_ONCE):
                unit.stop_if_requested()
                keys = catalog.texts("key").gather(block)
                writer.writerows(zip(keys, proposed[block.start : block.stop].tolist(), strict=True))
    return {"moved": counts, "concepts": list(homes), "file": PROPOSAL_FILE}


def _pairs(settings: Experiment, unit: Unit, split: str, concepts: list[int]) -> Pairs:
    """Return the samples of a split that have some concepts."""
    numbers, own = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for block, pairs in inputs.presence(settings, unit, split).blocks(len(samples.catalog(unit, split))):
        of_kind = pairs[settings.concept_settings.frequency]
        wanted = np.isin(of_kind.concepts, concepts)
        numbers.append(of_kind.samples[wanted] + block.start)
        own.append(of_kind.concepts[wanted])
    return Pairs(np.concatenate(numbers), np.concatenate(own))
