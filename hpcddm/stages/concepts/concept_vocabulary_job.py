"""Stage concept_vocabulary: nouns of the captions of a range; the concepts, from all nouns, a file, or the classes."""

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.catalog import TEXTS_AT_ONCE, split_into_blocks
from hpcddm.data.distinct_captions import CAPTION
from hpcddm.errors import require
from hpcddm.evaluation.concepts.json_files import WordsFile
from hpcddm.evaluation.concepts.vocabularies.base import VocabularySource
from hpcddm.evaluation.concepts.vocabulary import Candidates
from hpcddm.files import atomic, checked_reads
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import VOCABULARY_FILE, WORDS_FILE
from hpcddm.runs.ranges import split_of
from hpcddm.runs.stored_results import class_names
from hpcddm.runs.unit_keys import CONCEPT_VOCABULARY
from hpcddm.stages.progress import advance


def run(experiment: Experiment, unit: Unit) -> Result:
    """Count the nouns of one range, or choose the concepts."""
    return _choose(experiment, unit) if unit.key == CONCEPT_VOCABULARY else _count(experiment, unit)


def _count(experiment: Experiment, unit: Unit) -> Result:
    """Count the nouns of one range."""
    catalog, numbers = run_samples.open_unit_catalog(unit, split_of(unit.key)), run_samples.range_of(unit)
    require(
        catalog.has(CAPTION) or not numbers,
        "concepts.vocabulary: the images have no captions; say where they are in data.source, or take the vocabulary"
        " file or labels",
    )
    source = variants.create(VocabularySource, experiment.concept_settings.vocabulary)
    candidates = Candidates()
    for block in split_into_blocks(numbers, TEXTS_AT_ONCE):

        def seen(done: int, block: range = block) -> None:
            advance(unit, block.start - numbers.start + done, len(numbers))

        candidates.add(source.candidates(catalog.texts(CAPTION).gather(block), seen))
    atomic.write_json(unit.folder / WORDS_FILE, candidates.as_json())
    return Result([WORDS_FILE], {"captions": candidates.captions, "nouns": len(candidates.counts)})


def _choose(experiment: Experiment, unit: Unit) -> Result:
    """Choose the concepts."""
    source = variants.create(VocabularySource, experiment.concept_settings.vocabulary)
    parts = (
        checked_reads.read_required_mapping(unit.input(key, WORDS_FILE), WordsFile)
        for key in unit.inputs_of("concept_vocabulary")
    )
    candidates = Candidates.merged(parts)
    vocabulary = source.vocabulary(candidates, class_names(experiment, unit.inputs))
    vocabulary.write(unit.folder / VOCABULARY_FILE)
    print(f"{len(vocabulary)} concepts of {len(candidates.counts)} nouns of {candidates.captions} captions", flush=True)
    return Result([VOCABULARY_FILE], {"concepts": len(vocabulary), "nouns": len(candidates.counts)})
