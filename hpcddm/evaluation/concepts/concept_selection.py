"""Choice of the concepts that are scored: as many of each half decade of frequency, and of those that never occur."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from hpcddm.config.concepts import ConceptSettings
from hpcddm.errors import UserError
from hpcddm.evaluation.concepts.curves import half_decades
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import CONCEPTS_OF_BIN

NEVER = -1
"""Bin of concepts that no training sample has."""


@dataclass(frozen=True)
class SelectedConcept:
    """A concept that is scored."""

    concept: int
    bin: int
    real: list[int]
    """Held-out samples that have it, some at random."""
    different: int
    """Number of different captions of these samples, or of images in data without captions."""
    having: list[int]
    """Places of those among the others of the choice that have it."""
    seen: list[int]
    """Training samples that have it, some at random."""
    in_captions: list[list[int]]
    """Places in the choice of all chosen concepts that each of the real samples has."""


@dataclass(frozen=True)
class ConceptSelection:
    """Concepts that are scored, in ascending order."""

    others: list[int]
    """Held-out samples at random; those without a concept tell what its score is by chance."""
    chosen: list[SelectedConcept]

    @classmethod
    def read(cls, path: Path) -> "ConceptSelection":
        """Read what `as_json` made; raises `UserError` for what an earlier version wrote, and what is damaged."""
        try:
            choice: ConceptSelection = checked_reads.read_required_json(path, cls)
        except Unreadable as error:
            redo = "--redo concept_counts --redo concept_scores"
            raise UserError(f"{path}: {error.reason}; submit again with {redo}") from None
        return choice


def bins(frequency: Int64[np.ndarray, " v"]) -> Int64[np.ndarray, " v"]:
    """Return the half decade of every frequency: 0 for 1 to 3, 1 for 4 to 9, 2 for 10 to 31; `NEVER` for 0."""
    numbers = np.full(len(frequency), NEVER, dtype=np.int64)
    numbers[frequency > 0] = half_decades(frequency[frequency > 0])
    return numbers


def select_concepts(
    frequency: Int64[np.ndarray, " v"], heldout: Int64[np.ndarray, " v"], settings: ConceptSettings
) -> dict[int, int]:
    """Choose concepts at random, `per_bin` of each bin, or all: bin by concept, in ascending order.

    heldout: numbers of different held-out captions, or images, that have a concept; it needs `min_real`. The same
    frequencies give the same choice, whatever the clusters and the experiment's seed.
    """
    bin_of, chosen = bins(frequency), dict[int, int]()
    able = heldout >= settings.min_real
    for own in np.unique(bin_of):
        candidates = np.flatnonzero(able & (bin_of == own))
        taken = keyed.random_subset(settings.seed, CONCEPTS_OF_BIN.format(bin=own), len(candidates), settings.per_bin)
        chosen |= dict.fromkeys(candidates[taken].tolist(), int(own))
    return dict(sorted(chosen.items()))
