"""Stage concept_vocabulary: the concepts, from the nouns of all captions, a file, or the classes."""

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.evaluation.concepts.content import Words
from hpcddm.evaluation.concepts.vocabularies.base import VocabularySource
from hpcddm.evaluation.concepts.vocabulary import Candidates
from hpcddm.files import reading
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import VOCABULARY_FILE, WORDS_FILE
from hpcddm.runs.stored_results import class_names


def run(settings: Experiment, unit: Unit) -> Result:
    """Choose the concepts."""
    source = variants.create(VocabularySource, settings.concept_settings.vocabulary)
    parts = (reading.need_mapping(unit.input(key, WORDS_FILE), Words) for key in unit.inputs_of("concept_words"))
    candidates = Candidates.merged(parts)
    vocabulary = source.vocabulary(candidates, class_names(settings, unit.inputs))
    vocabulary.write(unit.folder / VOCABULARY_FILE)
    print(f"{len(vocabulary)} concepts of {len(candidates.counts)} nouns of {candidates.captions} captions", flush=True)
    return Result([VOCABULARY_FILE], {"concepts": len(vocabulary), "nouns": len(candidates.counts)})
