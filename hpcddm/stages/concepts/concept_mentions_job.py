"""Stage concept_mentions: the concepts that each caption of a range names, as a column."""

from hpcddm.config.experiment import Experiment
from hpcddm.data import samples
from hpcddm.data.captions import CAPTION
from hpcddm.data.catalog import TEXTS_AT_ONCE, blocks_of
from hpcddm.data.column_files import Spool
from hpcddm.errors import require
from hpcddm.evaluation.concepts.matching import Matcher
from hpcddm.evaluation.concepts.presence import CONCEPT_TYPE, MENTIONED
from hpcddm.evaluation.concepts.vocabulary import Vocabulary
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import MENTIONS_FILE, VOCABULARY_FILE
from hpcddm.runs.ranges import split_of
from hpcddm.runs.unit_keys import CONCEPT_VOCABULARY


def run(settings: Experiment, unit: Unit) -> Result:
    """Look for the concepts in the captions of one range."""
    catalog, numbers = samples.catalog(unit, split_of(unit.key)), samples.range_of(unit)
    require(
        catalog.has(CAPTION) or not numbers,
        "concepts.vocabulary: the images have no captions to look for its concepts in; take the vocabulary labels",
    )
    matcher = Matcher(
        Vocabulary.read(unit.input(CONCEPT_VOCABULARY, VOCABULARY_FILE)), settings.concept_settings.matching
    )
    count = 0
    with Spool(unit.folder) as spool:
        for block in blocks_of(numbers, TEXTS_AT_ONCE):
            unit.stop_if_requested()
            matches = matcher.match(catalog.texts(CAPTION).gather(block))
            spool.append({MENTIONED: [own.astype(CONCEPT_TYPE) for own in matches]})
            count += sum(map(len, matches))
            unit.heartbeat.beat(block.stop - numbers.start, len(numbers))
        spool.write(unit.folder / MENTIONS_FILE)
    return Result([MENTIONS_FILE], {"captions": len(numbers), "mentions": count})
