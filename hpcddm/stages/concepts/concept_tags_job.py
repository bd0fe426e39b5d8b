"""Stage concept_tags: the concepts that each caption of a range names, and each image shows most; or the tagger."""

from functools import partial

import numpy as np
from jaxtyping import Float32, Shaped
from safetensors.numpy import save_file

from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.catalog import TEXTS_AT_ONCE, Catalog, split_into_blocks
from hpcddm.data.column_files import Spool
from hpcddm.data.distinct_captions import CAPTION
from hpcddm.errors import UserError, require
from hpcddm.evaluation.concepts import stage_outputs
from hpcddm.evaluation.concepts.matching import Matcher
from hpcddm.evaluation.concepts.presence import CONCEPT_TYPE, MENTIONED, SCORE_TYPE, TAG_SCORE, TAGGED
from hpcddm.evaluation.concepts.taggers.base import Mentions
from hpcddm.files import atomic
from hpcddm.jobs.devices import choose_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import TAGGER_IMAGES
from hpcddm.runs.files import MENTIONS_FILE, TAGGER_FILE, TAGS_FILE, THRESHOLDS_FILE
from hpcddm.runs.ranges import TRAIN, split_of
from hpcddm.runs.unit_keys import CONCEPT_TAGGER
from hpcddm.stages.concepts.concept_tags import TAGS_OF_IMAGE
from hpcddm.stages.progress import advance
from hpcddm.stages.workload import ENCODER, READING, Work, Workload

IMAGES_AT_ONCE = 256
MAX_IMAGES = 200_000
"""Maximum number of training images whose features the tagger holds in memory."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Train the tagger, or look through captions and images of one range."""
    return _train(experiment, unit) if unit.key == CONCEPT_TAGGER else _tag_range(experiment, unit)


def work(workload: Workload, key: str) -> list[Work]:
    """List the reading of one range, and an encoder's run on it."""
    if key == CONCEPT_TAGGER:
        return []
    return [Work(kind, False, workload.images_of(key), IMAGES_AT_ONCE) for kind in (READING, ENCODER)]


def _train(experiment: Experiment, unit: Unit) -> Result:
    """Train the tagger on training images, or some at random, and the concepts of their captions."""
    concepts = experiment.concept_settings
    if not concepts.vocabulary.is_matched:
        name = concepts.tagger.name
        raise UserError(f"concepts.tagger: {name} learns from captions, and the vocabulary looks at none; take labels")
    reader, catalog = run_samples.open_reader(unit, TRAIN), _open_captioned_catalog(unit, TRAIN)
    numbers = np.sort(keyed.random_subset(concepts.seed, TAGGER_IMAGES, len(reader), MAX_IMAGES))
    captions = catalog.texts(CAPTION).gather(numbers)
    seen = Mentions(numbers, _matcher(experiment, unit).match(captions), captions)

    tagger = stage_outputs.new_tagger(experiment, unit, choose_device(unit))
    arrays = tagger.fit(reader, seen, concepts.seed, partial(advance, unit))
    with atomic.replacing(unit.folder / TAGGER_FILE) as staged:
        save_file(dict(arrays), staged)
    return Result([TAGGER_FILE], {"images": len(numbers)})


def _tag_range(experiment: Experiment, unit: Unit) -> Result:
    """Tag the images of one range, and look for the concepts in their captions, where the vocabulary is of words."""
    reader, numbers = run_samples.open_reader(unit, split_of(unit.key)), run_samples.range_of(unit)
    mentions = _mentions(experiment, unit, numbers) if experiment.concept_settings.vocabulary.is_matched else {}
    tagger = stage_outputs.tagger(experiment, unit, choose_device(unit))
    shown = 0
    with Spool(unit.folder) as spool:
        for block in split_into_blocks(numbers, IMAGES_AT_ONCE):
            unit.stop_if_requested()
            scores = tagger.scores_of(reader, block)
            shown += int((scores >= tagger.thresholds).sum())
            spool.append(dict(zip((TAGGED, TAG_SCORE), largest(scores, TAGS_OF_IMAGE), strict=True)))
            unit.heartbeat.beat(block.stop - numbers.start, len(numbers))
        spool.write(unit.folder / TAGS_FILE)
    atomic.write_json(unit.folder / THRESHOLDS_FILE, stage_outputs.as_json(tagger.thresholds))
    results = {"images": len(numbers), "shown": shown} | mentions
    return Result([TAGS_FILE, THRESHOLDS_FILE, *([MENTIONS_FILE] if mentions else [])], results)


def _mentions(experiment: Experiment, unit: Unit, numbers: range) -> dict[str, int]:
    """Write the concepts that each caption names, and count them."""
    catalog, matcher = _open_captioned_catalog(unit, split_of(unit.key), numbers), _matcher(experiment, unit)
    count = 0
    with Spool(unit.folder) as spool:
        for block in split_into_blocks(numbers, TEXTS_AT_ONCE):
            unit.stop_if_requested()
            matches = matcher.match(catalog.texts(CAPTION).gather(block))
            spool.append({MENTIONED: [own.astype(CONCEPT_TYPE) for own in matches]})
            count += sum(map(len, matches))
            unit.heartbeat.beat(block.stop - numbers.start, len(numbers))
        spool.write(unit.folder / MENTIONS_FILE)
    return {"mentions": count}


def _open_captioned_catalog(unit: Unit, split: str, numbers: range | None = None) -> Catalog:
    """Open the catalog of a split; raises `UserError` where those samples, by default all, have no captions."""
    catalog = run_samples.open_unit_catalog(unit, split)
    require(
        catalog.has(CAPTION) or numbers == range(0),
        "concepts.vocabulary: the images have no captions to look for its concepts in; take the vocabulary labels",
    )
    return catalog


def _matcher(experiment: Experiment, unit: Unit) -> Matcher:
    return Matcher(stage_outputs.vocabulary(unit), experiment.concept_settings.matching)


def largest(
    scores: Float32[np.ndarray, "n v"], count: int
) -> tuple[Shaped[np.ndarray, "n k"], Shaped[np.ndarray, "n k"]]:
    """Return the concepts of the largest scores of every image, and the scores; of equal ones the first concepts.

    Scores are rounded first, so that the order is that of what is stored.
    """
    rounded = scores.astype(SCORE_TYPE)
    size = rounded.shape[1]
    # Numbers in the order of the scores, those of equal scores in that of the concepts: all different.
    bits = rounded.view(np.int16).astype(np.int64)
    order = -np.where(bits < 0, -(bits & 0x7FFF), bits) * size + np.arange(size)
    count = min(count, size)
    concepts = np.argpartition(order, count - 1, axis=1)[:, :count]
    concepts = np.take_along_axis(concepts, np.take_along_axis(order, concepts, 1).argsort(1), 1)
    return concepts.astype(CONCEPT_TYPE), np.take_along_axis(rounded, concepts, axis=1)
