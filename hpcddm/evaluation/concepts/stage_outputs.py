"""Outputs of a run's concept stages, opened for the stages that read them."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int64

from hpcddm.config import variants
from hpcddm.config.concepts import TaggerSettings
from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.catalog import TEXTS_AT_ONCE, split_into_blocks
from hpcddm.data.distinct_captions import CAPTION
from hpcddm.data.sample_keys import hash_of
from hpcddm.errors import require
from hpcddm.evaluation.concepts.counting import Counts
from hpcddm.evaluation.concepts.json_files import ThresholdsFile
from hpcddm.evaluation.concepts.presence import MENTIONED, TAG_SCORE, TAGGED, Presence
from hpcddm.evaluation.concepts.taggers.base import Tagger, TaggerContext
from hpcddm.evaluation.concepts.vocabulary import Vocabulary
from hpcddm.files import checked_reads, tensors
from hpcddm.jobs.unit import Unit
from hpcddm.runs import manifest
from hpcddm.runs.files import COUNTS_FILE, MENTIONS_FILE, TAGGER_FILE, TAGS_FILE, THRESHOLDS_FILE, VOCABULARY_FILE
from hpcddm.runs.ranges import tags_keys
from hpcddm.runs.unit_keys import CONCEPT_COUNTS, CONCEPT_TAGGER, CONCEPT_VOCABULARY


def vocabulary(unit: Unit) -> Vocabulary:
    """Read the concepts."""
    return Vocabulary.read(unit.input(CONCEPT_VOCABULARY, VOCABULARY_FILE))


def caption_hashes(unit: Unit, split: str) -> Int64[np.ndarray, " n"]:
    """Hash the caption of every sample of a split, equal ones alike; without captions all samples differ."""
    catalog = run_samples.open_unit_catalog(unit, split)
    if not catalog.has(CAPTION):
        return np.arange(len(catalog))
    texts = catalog.texts(CAPTION)
    blocks = split_into_blocks(range(len(catalog)), TEXTS_AT_ONCE)
    hashes = [np.array([*map(hash_of, texts.gather(block))], np.uint64).astype(np.int64) for block in blocks]
    return np.concatenate([np.empty(0, np.int64), *hashes])


def presence(experiment: Experiment, unit: Unit, split: str) -> Presence:
    """Map which samples of a split have which concepts."""
    catalog = run_samples.open_unit_catalog(unit, split)
    concepts, scores = (catalog.column_of_stage("concept_tags", TAGS_FILE, name) for name in (TAGGED, TAG_SCORE))
    is_matched = experiment.concept_settings.vocabulary.is_matched
    mentions = catalog.ragged_column_of_stage("concept_tags", MENTIONS_FILE, MENTIONED) if is_matched else None
    # All ranges were tagged with the same ones.
    file, known = unit.input(tags_keys(experiment)[0], THRESHOLDS_FILE), len(vocabulary(unit))
    thresholds: ThresholdsFile = checked_reads.read_required_json(file, ThresholdsFile)
    is_of_all = len(thresholds.scores) == known
    require(is_of_all, f"{file}: is of other concepts than the vocabulary; submit again with --redo concept_tags")
    return Presence(known, mentions, (concepts, scores), _from_json(thresholds.scores))


def homes(experiment: Experiment, unit: Unit) -> list[int | None]:
    """Read the home expert of every concept; None for one that no training sample has."""
    counts, kind = Counts.read(unit.input(CONCEPT_COUNTS, COUNTS_FILE)), experiment.concept_settings.frequency
    occurs = counts.table(kind).sum(1) > 0
    return [int(home) if has else None for home, has in zip(counts.homes(kind), occurs, strict=True)]


def new_tagger(experiment: Experiment, unit: Unit, device: torch.device) -> Tagger[TaggerSettings]:
    """Create the tagger, not trained yet."""
    context = TaggerContext(experiment, vocabulary(unit), unit.run.unit, device)
    return variants.create(Tagger, experiment.concept_settings.tagger, context)


def tagger(experiment: Experiment, unit: Unit, device: torch.device) -> Tagger[TaggerSettings]:
    """Open the tagger, ready for use."""
    own = new_tagger(experiment, unit, device)
    if experiment.concept_settings.tagger.is_trained:
        path = unit.input(CONCEPT_TAGGER, TAGGER_FILE)
        with tensors.open_weights(path) as file:
            tensors.fill({}, file, manifest.recorded_digest(path.parent, path.name))
            # Not all are finite: the threshold of a concept that is never detected is infinity.
            own.load({name: tensors.read_whole(file, name).numpy() for name in file.forms})
    return own


def as_json(thresholds: np.ndarray) -> dict[str, list[float | None]]:
    """Return thresholds as JSON holds them, which knows no infinity."""
    return {"scores": [float(score) if np.isfinite(score) else None for score in thresholds]}


def _from_json(scores: Sequence[float | None]) -> np.ndarray:
    return np.array([np.inf if score is None else score for score in scores], dtype=np.float32)
