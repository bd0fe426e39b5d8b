"""Stage concept_words: the nouns of the captions of a range, with the number of captions that have each."""

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import samples
from hpcddm.data.captions import CAPTION
from hpcddm.data.catalog import TEXTS_AT_ONCE, blocks_of
from hpcddm.errors import require
from hpcddm.evaluation.concepts.vocabularies.base import VocabularySource
from hpcddm.evaluation.concepts.vocabulary import Candidates
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import WORDS_FILE
from hpcddm.runs.ranges import split_of


def run(settings: Experiment, unit: Unit) -> Result:
    """Count the nouns of one range."""
    catalog, numbers = samples.catalog(unit, split_of(unit.key)), samples.range_of(unit)
    require(
        catalog.has(CAPTION) or not numbers,
        "concepts.vocabulary: the images have no captions; say where they are in data.source, or take the vocabulary"
        " file or labels",
    )
    source = variants.create(VocabularySource, settings.concept_settings.vocabulary)
    candidates = Candidates()
    for block in blocks_of(numbers, TEXTS_AT_ONCE):

        def advance(done: int, block: range = block) -> None:
            unit.stop_if_requested()
            unit.heartbeat.beat(block.start - numbers.start + done, len(numbers))

        candidates.add(source.candidates(catalog.texts(CAPTION).gather(block), advance))
    atomic.write_json(unit.folder / WORDS_FILE, candidates.as_json())
    return Result([WORDS_FILE], {"captions": candidates.captions, "nouns": len(candidates.counts)})
