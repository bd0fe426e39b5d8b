"""Concepts that a text file lists, one per line."""

from collections.abc import Sequence
from pathlib import Path

from hpcddm.config.concepts import VocabularySettings
from hpcddm.config.schema import PathSetting
from hpcddm.data import texts
from hpcddm.errors import UserError, require
from hpcddm.evaluation.concepts import plurals
from hpcddm.evaluation.concepts.vocabularies.base import VocabularySource
from hpcddm.evaluation.concepts.vocabulary import Candidates, Concept, Vocabulary
from hpcddm.evaluation.concepts.words import name_of
from hpcddm.files import atomic


class Settings(VocabularySettings):
    """Text in UTF-8 with a concept per line, such as 'fire engine', in the singular; captions may have the plural."""

    concepts: PathSetting
    content: str | None = None
    """The SHA-256 of its content; filled in by submit, so that other concepts are never taken for these."""


class File(VocabularySource[Settings]):
    """Concepts of a file, with the plurals of their words; empty lines and lines that begin with # are skipped."""

    def vocabulary(self, candidates: Candidates, class_names: Sequence[str]) -> Vocabulary:
        """Read the file.

        Raises `UserError` naming it when it is another one than was submitted, or has no concept, and the line that is
        no word or words, or stands there twice.
        """
        path = Path(self.settings.concepts)
        lines: dict[str, int] = {}
        for number, text in enumerate(_lines(path, self.settings.content), 1):
            if not text.strip() or text.startswith("#"):
                continue
            try:
                name = name_of(text)
            except ValueError as error:
                raise UserError(f"{path}: line {number}: {error}") from None
            require(
                name not in lines, f"{path}: line {number}: {name} stands in line {lines.get(name)}, too; remove one"
            )
            lines[name] = number
        require(len(lines) > 0, f"{path}: has no concept; write one per line")
        return Vocabulary([Concept(name) for name in sorted(lines)], plurals.lemmas(lines))


def _lines(path: Path, submitted: str | None) -> list[str]:
    """Read the lines; bytes that are no UTF-8 are part of no word."""
    try:
        atomic.require_submitted(path, submitted, atomic.sha256(path))
        with texts.opened(path) as file:
            return file.read().splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read: {reason}; concepts.vocabulary.concepts names it") from None
