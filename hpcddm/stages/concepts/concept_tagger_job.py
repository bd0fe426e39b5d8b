"""Stage concept_tagger: trains the tagger on training images and the concepts of their captions."""

import numpy as np
from jaxtyping import Int64
from safetensors.numpy import save_file

from hpcddm.config.experiment import Experiment
from hpcddm.data import draws, samples
from hpcddm.data.captions import CAPTION
from hpcddm.data.catalog import blocks_of
from hpcddm.data.columns import RaggedColumn
from hpcddm.errors import UserError
from hpcddm.evaluation.concepts import inputs
from hpcddm.evaluation.concepts.taggers.base import Mentions
from hpcddm.files import atomic
from hpcddm.jobs.devices import own_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import TAGGER_FILE
from hpcddm.runs.ranges import TRAIN

MOST_IMAGES = 200_000
"""Training images at most, of which the features are in memory together."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Train the tagger."""
    reader, mentioned = samples.reader(unit, TRAIN), inputs.mentions(unit, TRAIN)
    if mentioned is None:
        name = settings.concept_settings.tagger.name
        raise UserError(f"concepts.tagger: {name} learns from captions, and the vocabulary looks at none; take labels")
    seed = settings.concept_settings.seed
    numbers = np.sort(draws.chosen(seed, "concept tagger", len(reader), MOST_IMAGES))
    seen = Mentions(numbers, _concepts(mentioned, numbers), samples.catalog(unit, TRAIN).texts(CAPTION).gather(numbers))

    def advance(done: int, total: int) -> None:
        unit.stop_if_requested()
        unit.heartbeat.beat(done, total)

    arrays = inputs.new_tagger(settings, unit, own_device(unit)).fit(reader, seen, seed, advance)
    with atomic.replacing(unit.folder / TAGGER_FILE) as staged:
        save_file(dict(arrays), staged)
    return Result([TAGGER_FILE], {"images": len(numbers)})


def _concepts(mentioned: RaggedColumn, numbers: Int64[np.ndarray, " n"]) -> list[Int64[np.ndarray, " _"]]:
    """Copy the concepts of some samples, in ascending order of these."""
    concepts: list[Int64[np.ndarray, " _"]] = []
    for block in blocks_of(range(len(mentioned))):
        values, lengths = mentioned.flat(block)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        own = numbers[np.searchsorted(numbers, block.start) : np.searchsorted(numbers, block.stop)] - block.start
        concepts += [values[ends[place] : ends[place + 1]].astype(np.int64) for place in own]
    return concepts
