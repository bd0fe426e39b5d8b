"""Types of the JSON files of the concept stages, which another site may have made."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from hpcddm.errors import require
from hpcddm.evaluation.concepts.advice import Advice
from hpcddm.evaluation.concepts.concept_table import ConceptRow
from hpcddm.evaluation.concepts.scores import Score, require_moderate
from hpcddm.files import checked_reads


@dataclass(frozen=True)
class WordsFile:
    """Content of nouns.json: nouns of some captions, as `Candidates` has them."""

    captions: int
    counts: dict[str, int]
    forms: list[tuple[str, str, int]]

    def __post_init__(self) -> None:
        """Raise `ValueError` for a count that cannot be."""
        checked_reads.require_counts(self.captions, *self.counts.values(), *(count for *_, count in self.forms))


@dataclass(frozen=True)
class ThresholdsFile:
    """Content of thresholds.json: the score of every concept; None where no score is high enough."""

    scores: list[float | None]


@dataclass(frozen=True)
class ScoresFile:
    """Content of scores.json; chance: by model, sums and counts over the concepts that were chosen."""

    scores: list[Score]
    chance: dict[str, tuple[list[float], list[int]]]


@dataclass(frozen=True)
class Alignment:
    """Content of alignment.json, and of that part of concepts.json; either `unavailable_metrics`, or all else."""

    left_out: str | None = None
    levels: list[float] = field(default_factory=list)
    errors: dict[str, list[float]] = field(default_factory=dict)
    distances: dict[str, dict[str, list[float]]] | None = None
    times: list[float] = field(default_factory=list)
    reason: str | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` where a line has more or fewer points than its axis, or is missing."""
        if self.left_out is not None:
            return
        _require_lines(self.errors, ("selected", "others", "best", "selected_is_best"), len(self.levels))
        for lines in (self.distances or {}).values():
            _require_lines(lines, ("asked", "every"), len(self.times))
        require_moderate(*self.levels, *self.times)


@dataclass(frozen=True)
class Proposal:
    """Part of concepts.json about the samples that could be moved."""

    moved: dict[Literal["train", "heldout"], int]
    concepts: list[int]
    file: str

    def __post_init__(self) -> None:
        """Raise `ValueError` for a count that cannot be, or that is missing."""
        checked_reads.require_counts(*self.moved.values())
        require(len(self.moved) == 2, "moved: lacks a split", ValueError)


@dataclass(frozen=True)
class ConceptsFile:
    """Content of concepts.json; its fits are made again where they are needed."""

    __pydantic_config__: ClassVar = checked_reads.ALLOW_EXTRA_KEYS

    experiment: str
    seed: int
    settings: dict[str, Any]
    frequency: Literal["text", "image", "joint"]
    arm: str
    dense: str | None
    concepts: list[ConceptRow]
    alignment: Alignment | None
    advice: Advice
    proposal: Proposal

    def __post_init__(self) -> None:
        """Raise `ValueError` where the parts do not fit one another."""
        experts = [expert.expert for expert in self.advice.experts]
        if not experts or experts != list(range(len(experts))):
            raise ValueError("advice.experts: are not numbered from 0 on")
        if [row.concept for row in self.concepts] != list(range(len(self.concepts))):
            raise ValueError("concepts: are not numbered from 0 on")
        if any(len(row.experts) != len(experts) for row in self.concepts):
            raise ValueError("concepts: have other experts than the advice")
        named = [*self.advice.split, *self.advice.worst, *self.proposal.concepts]
        if not all(0 <= concept < len(self.concepts) for concept in named):
            raise ValueError("names a concept that is not in the table")


def _require_lines(lines: dict[str, list[float]], names: Iterable[str], points: int) -> None:
    for name in names:
        require(len(lines.get(name, ())) == points, f"'{name}' has not {points} points", ValueError)
    require_moderate(*(value for line in lines.values() for value in line))
