"""Vocabulary: the concepts whose frequency is counted, and how words of captions become words of concepts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable


@dataclass(frozen=True)
class Concept:
    """One thing that captions name, or images show."""

    name: str
    """Words in lower case with one space between them, such as 'fire engine'; of a class its name as it is."""
    label: int | None = None
    """Class whose images show it; None for a concept that is not a class."""

    @property
    def words(self) -> tuple[str, ...]:
        """Words of the name, in the singular where the noun has one."""
        return tuple(self.name.split())


@dataclass(frozen=True)
class Vocabulary:
    """Concepts by number, and the lemma of every word that has another one: 'women' is 'woman'."""

    concepts: list[Concept]
    lemmas: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.concepts)

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        atomic.write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """Read a vocabulary that `write` has written; raises `UserError` naming a file that is missing or torn."""
        try:
            vocabulary: Vocabulary = checked_reads.read_required_json(path, cls)
        except Unreadable as error:
            raise UserError(f"{path}: {error.reason}; submit again with --redo concept_vocabulary") from None
        return vocabulary


@dataclass
class Candidates:
    """Nouns of some captions, and the forms in which they occur; counts of several ranges of captions add up."""

    captions: int = 0
    """Number of captions that were read."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of captions with a noun, by its lemmas: 'fire engine'."""
    forms: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of times that a word in lower case has a lemma, by (word, lemma)."""

    def add(self, other: "Candidates") -> None:
        """Add the counts of other captions."""
        self.captions += other.captions
        self.counts.update(other.counts)
        self.forms.update(other.forms)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it, in alphabetical order."""
        forms = sorted((word, lemma, count) for (word, lemma), count in self.forms.items())
        return {"captions": self.captions, "counts": dict(sorted(self.counts.items())), "forms": forms}

    @classmethod
    def merged(cls, parts: Iterable[dict[str, Any]]) -> "Candidates":
        """Add up the candidates of several ranges, each as `as_json` returns them."""
        total = cls()
        for part in parts:
            forms = Counter({(word, lemma): count for word, lemma, count in part["forms"]})
            total.add(cls(part["captions"], Counter(part["counts"]), forms))
        return total
