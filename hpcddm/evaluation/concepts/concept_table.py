"""Table of the concepts: how often each occurs and where, and how well each arm draws it."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from hpcddm.errors.next_step import install_command
from hpcddm.evaluation.concepts.concept_selection import bins
from hpcddm.evaluation.concepts.counting import Counts
from hpcddm.evaluation.concepts.presence import KINDS
from hpcddm.evaluation.concepts.scores import OTHER_ARM, PROMPT_ARM, REAL_ARM, Score, relative, require_moderate
from hpcddm.evaluation.concepts.vocabulary import Vocabulary
from hpcddm.files import atomic, checked_reads
from hpcddm.runs.unit_keys import HOME_ARM


@dataclass(frozen=True)
class ConceptRow:
    """One concept. frequency: training samples that have it, as the experiment counts them."""

    # The file has further columns, which follow from these.
    __pydantic_config__: ClassVar = checked_reads.ALLOW_EXTRA_KEYS

    concept: int
    name: str
    frequency: int
    text: int
    image: int
    joint: int
    experts: list[int]
    """Frequency in the cluster of every expert; they add up to that in all data."""
    home: int | None
    """Expert whose cluster has it most often; None for a concept that no training sample has."""
    bin: int
    scores: dict[str, dict[str, float | None]]
    """Scores by arm, of a concept that is scored: what `Score` holds, and the `relative` score."""
    captions: list[str]
    """Hashes of the captions of the held-out images that it is scored by."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for counts that do not fit one another, or a score that cannot be."""
        checked_reads.require_counts(self.frequency, self.text, self.image, self.joint, *self.experts)
        if sum(self.experts) != self.frequency:
            raise ValueError("experts: do not add up to the frequency")
        if (self.home is None) != (self.frequency == 0) or not 0 <= (self.home or 0) < len(self.experts):
            raise ValueError("home: is not one of the experts")
        require_moderate(*(value for own in self.scores.values() for value in own.values() if value))

    @property
    def at_home(self) -> int:
        """Frequency in the cluster of its home expert."""
        return self.experts[self.home] if self.home is not None else 0

    @property
    def share_at_home(self) -> float | None:
        """Share of its samples that its home expert has."""
        return self.at_home / self.frequency if self.frequency else None

    def relative(self, arm: str) -> float | None:
        """Return an arm's score relative to that of real images; None where there is none."""
        return self.scores.get(arm, {}).get("relative")

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        derived = {"at_home": self.at_home, "share_at_home": self.share_at_home}
        return vars(self) | derived

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "ConceptRow":
        """Read what `as_json` made."""
        return cls(**{field.name: content[field.name] for field in fields(cls)})

    def flat(self) -> dict[str, Any]:
        """Return it as a row of a table, a column of each number."""
        plain = {key: value for key, value in self.as_json().items() if key not in ("experts", "scores", "captions")}
        # Names of classes need not be UTF-8, as names of folders need not; other programs want nothing else.
        plain["name"] = self.name.encode(errors="replace").decode()
        plain |= {f"expert-{expert:02d}": count for expert, count in enumerate(self.experts)}
        return plain | {f"{arm}.{key}": value for arm, own in self.scores.items() for key, value in own.items()}


def make_rows(
    vocabulary: Vocabulary,
    counts: Counts,
    kind: str,
    scores: Mapping[int, Mapping[str, Score]],
    captions: Mapping[int, list[str]],
) -> list[ConceptRow]:
    """Make the table; kind: of the samples that count; scores: by concept and arm; captions: hashes by concept."""
    own = counts.table(kind)
    sums = {name: counts.table(name).sum(1) for name in KINDS}
    bin_of, homes = bins(own.sum(1)), counts.homes(kind)
    table = []
    for concept, entry in enumerate(vocabulary.concepts):
        frequency = int(own[concept].sum())
        home = int(homes[concept]) if frequency else None
        table.append(
            ConceptRow(
                concept=concept,
                name=entry.name,
                frequency=frequency,
                **{name: int(of_kind[concept]) for name, of_kind in sums.items()},
                experts=own[concept].tolist(),
                home=home,
                bin=int(bin_of[concept]),
                scores=_scores(scores[concept], home) if concept in scores else {},
                captions=captions.get(concept, []),
            )
        )
    return table


def _scores(of_concept: Mapping[str, Score], home: int | None) -> dict[str, dict[str, Any]]:
    """Return the scores of one concept by arm, those of its home expert alone once more under its own name."""
    known = {arm: score.as_json() | {"relative": relative(of_concept, arm)} for arm, score in of_concept.items()}
    for arm in (REAL_ARM, OTHER_ARM, PROMPT_ARM):
        known.get(arm, {}).pop("relative", None)
    alone = f"expert-{home:02d}" if home is not None else ""
    if alone in known:
        known[HOME_ARM] = known[alone]
    return {
        arm: {key: value for key, value in own.items() if key not in ("concept", "arm")} for arm, own in known.items()
    }


def write(plain: Path, parquet: Path, table: Sequence[ConceptRow]) -> list[Path]:
    """Write the table as CSV, and as parquet where polars is installed; return what was written."""
    flat = [row.flat() for row in table]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    atomic.write_text(plain, text.getvalue())
    try:
        import polars
    except ImportError:
        print(f"no parquet: polars is not installed; install it with: {install_command('polars')}", flush=True)
        return [plain]
    complete = {column: [row.get(column) for row in flat] for column in columns}
    with atomic.replacing(parquet) as staged:
        polars.DataFrame(complete, strict=False).write_parquet(staged)
    return [plain, parquet]
