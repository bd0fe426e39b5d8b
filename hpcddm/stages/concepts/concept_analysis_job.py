"""Stage concept_analysis: the table of all concepts, fits of quality to frequency, advice, and a page about them."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.data import run_samples
from hpcddm.data.catalog import TEXTS_AT_ONCE, split_into_blocks
from hpcddm.errors import require
from hpcddm.evaluation.concepts import analysis, concept_table, stage_outputs
from hpcddm.evaluation.concepts.advice import MAX_MOVED_SHARE, Advice, advise, move_to_home
from hpcddm.evaluation.concepts.concept_selection import ConceptSelection
from hpcddm.evaluation.concepts.concept_table import ConceptRow
from hpcddm.evaluation.concepts.counting import Counts
from hpcddm.evaluation.concepts.json_files import Alignment, ScoresFile
from hpcddm.evaluation.concepts.scores import ChanceScores, Score, by_concept
from hpcddm.evaluation.report import concept_images, concepts_page
from hpcddm.evaluation.report.concept_facts import ConceptFacts
from hpcddm.files import atomic, checked_reads
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
from hpcddm.stages.concepts.concept_scores import concept_strategies, scores_keys


def run(experiment: Experiment, unit: Unit) -> Result:
    """Merge counts and scores, fit, and advise."""
    kind, arm = experiment.concept_settings.frequency, concept_strategies(experiment)[0]
    counts = Counts.read(unit.input(CONCEPT_COUNTS, COUNTS_FILE))
    choice = ConceptSelection.read(unit.input(CONCEPT_COUNTS, CHOSEN_FILE))
    scores = by_concept(_scores(experiment, unit, choice))
    rows = concept_table.make_rows(stage_outputs.vocabulary(unit), counts, kind, scores, _captions(unit, choice))
    dense = MONOLITH_ARM if experiment.monolith.enabled else None
    advice = advise(rows, counts.samples.tolist(), arm, dense)
    content = {
        "experiment": experiment.name,
        "seed": experiment.seed,
        "settings": settings_to_hash(experiment.concept_settings),
        "frequency": kind,
        "arm": arm,
        "dense": dense,
        "concepts": [row.as_json() for row in rows],
        "alignment": _alignment(unit),
        "advice": asdict(advice),
    }
    content["proposal"] = _propose(experiment, unit, rows, advice)
    content["fits"] = analysis.fits([content])
    atomic.write_json(unit.folder / CONCEPTS_FILE, content)
    tables = concept_table.write(unit.folder / CONCEPTS_TABLE, unit.folder / CONCEPTS_PARQUET, rows)
    _show(experiment, unit, ConceptFacts(content))
    return Result(
        [CONCEPTS_FILE, PROPOSAL_FILE, *(path.name for path in tables), SHOWN_FILE, CONCEPTS_PAGE],
        {"concepts": len(rows), "proposal": content["proposal"]},
    )


def _alignment(unit: Unit) -> dict[str, Any] | None:
    """Read what is known of the experts that are asked."""
    if CONCEPT_ALIGNMENT not in unit.inputs:
        return None
    return checked_reads.read_required_mapping(unit.input(CONCEPT_ALIGNMENT, ALIGNMENT_FILE), Alignment)


def _show(experiment: Experiment, unit: Unit, facts: ConceptFacts) -> None:
    """Write the page, and its pictures for the report."""
    files = [unit.input(key, PICTURES_FILE) for key in scores_keys(experiment)]
    shown = concept_images.gather(files, facts.pictured())
    concept_images.write(shown, unit.folder / SHOWN_FILE)
    atomic.write_text(unit.folder / CONCEPTS_PAGE, concepts_page.render(facts, shown))


def _scores(experiment: Experiment, unit: Unit, choice: ConceptSelection) -> Iterator[Score]:
    """Read the scores of all units, in the order of the concepts, each with its chance."""
    files = [unit.input(key, SCORES_FILE) for key in scores_keys(experiment)]
    contents: list[ScoresFile] = [checked_reads.read_required_json(file, ScoresFile) for file in files]
    chance, homes = ChanceScores(), stage_outputs.homes(experiment, unit)
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


def _captions(unit: Unit, choice: ConceptSelection) -> dict[int, list[str]]:
    """Return hashes of the captions of the held-out images by which concepts are scored."""
    hashes = stage_outputs.caption_hashes(unit, HELDOUT)
    return {own.concept: [f"{caption:016x}" for caption in hashes[own.real].view(np.uint64)] for own in choice.chosen}


def _propose(experiment: Experiment, unit: Unit, rows: Sequence[ConceptRow], advice: Advice) -> dict[str, Any]:
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
            catalog = run_samples.open_unit_catalog(unit, split)
            clusters = run_samples.clusters(catalog).gather(range(len(catalog))).astype(np.int64)
            pairs = stage_outputs.presence(experiment, unit, split).gather(
                len(catalog),
                experiment.concept_settings.frequency,
                unit.stop_if_requested,
                np.array([*homes], np.int64),
            )
            # The training samples decide which concepts move; held-out samples follow.
            most = round(MAX_MOVED_SHARE * len(clusters)) if split == TRAIN else len(clusters)
            proposed, taken = move_to_home(pairs, clusters, homes, most)
            homes = {concept: homes[concept] for concept in taken}
            counts[split] = int((proposed != clusters).sum())
            for block in split_into_blocks(range(len(catalog)), TEXTS_AT_ONCE):
                unit.stop_if_requested()
                keys = catalog.texts("key").gather(block)
                writer.writerows(zip(keys, proposed[block.start : block.stop].tolist(), strict=True))
    return {"moved": counts, "concepts": list(homes), "file": PROPOSAL_FILE}
