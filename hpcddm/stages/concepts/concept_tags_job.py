"""Stage concept_tags: the concepts that each image of a range shows most, with their scores, as columns."""

import numpy as np
from jaxtyping import Float32, Shaped

from hpcddm.config.experiment import Experiment
from hpcddm.data import samples
from hpcddm.data.catalog import blocks_of
from hpcddm.data.column_files import Spool
from hpcddm.evaluation.concepts import inputs
from hpcddm.evaluation.concepts.presence import CONCEPT_TYPE, SCORE_TYPE, TAG_SCORE, TAGGED
from hpcddm.files import atomic
from hpcddm.jobs.devices import own_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import TAGS_FILE, THRESHOLDS_FILE
from hpcddm.runs.ranges import split_of
from hpcddm.stages.concepts.concept_tags import TAGS_OF_IMAGE
from hpcddm.stages.workload import ENCODER, READING, Work, Workload

IMAGES_AT_ONCE = 256


def run(settings: Experiment, unit: Unit) -> Result:
    """Tag the images of one range."""
    reader, numbers = samples.reader(unit, split_of(unit.key)), samples.range_of(unit)
    tagger = inputs.tagger(settings, unit, own_device(unit))
    shown = 0
    with Spool(unit.folder) as spool:
        for block in blocks_of(numbers, IMAGES_AT_ONCE):
            unit.stop_if_requested()
            scores = tagger.scores_of(reader, block)
            shown += int((scores >= tagger.thresholds).sum())
            spool.append(dict(zip((TAGGED, TAG_SCORE), largest(scores, TAGS_OF_IMAGE), strict=True)))
            unit.heartbeat.beat(block.stop - numbers.start, len(numbers))
        spool.write(unit.folder / TAGS_FILE)
    atomic.write_json(unit.folder / THRESHOLDS_FILE, inputs.as_json(tagger.thresholds))
    return Result([TAGS_FILE, THRESHOLDS_FILE], {"images": len(numbers), "shown": shown})


def work(workload: Workload, key: str) -> list[Work]:
    """List the reading of one range, and an encoder's run on it."""
    return [Work(kind, False, workload.images_of(key), IMAGES_AT_ONCE) for kind in (READING, ENCODER)]


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
