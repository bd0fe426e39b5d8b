"""Concepts that a text file lists, one per line."""

from collections.abc import Sequence
from pathlib import Path

from hpcddm.config.concepts import VocabularySettings
from hpcddm.config.schema import PathSetting
from hpcddm.errors import UserError, require
from hpcddm.evaluation.concepts import plurals
from hpcddm.evaluation.concepts.tokenise import name_of
from hpcddm.evaluation.concepts.vocabularies.base import VocabularySource
from hpcddm.evaluation.concepts.vocabulary import Candidates, Concept, Vocabulary
from hpcddm.files import atomic, text_files


class FileVocabularySettings(VocabularySettings):
    """Text in UTF-8 with a concept per line, such as 'fire engine', in the singular; captions may have the plural."""

    concepts: PathSetting
    content_hash: str | None = None
    """The SHA-256 of its content; filled in by submit, so that other concepts are never taken for these."""


class FileVocabulary(VocabularySource[FileVocabularySettings]):
    """Concepts of a file, with the plurals of their words; empty lines and lines that begin with # are skipped."""

    def vocabulary(self, candidates: Candidates, class_names: Sequence[str]) -> Vocabulary:
        """Read the file.

        Raises `UserError` that names the file if it differs from the submitted one or is empty, or the line if it is
        not a word or words, or repeats another line.
        """
        path = Path(self.settings.concepts)
        lines: dict[str, int] = {}
        for number, text in enumerate(_lines(path, self.settings.content_hash), 1):
            if not text.strip() or text.startswith("#"):
                continue
            try:
                name = name_of(text)
            except ValueError as error:
                raise UserError(f"{path}: line {number}: {error}") from None
            require(name not in lines, f"{path}: line {number}: {name} is also in line {lines.get(name)}; remove one")
            lines[name] = number
        require(len(lines) > 0, f"{path}: has no concept; write one per line")
        return Vocabulary([Concept(name) for name in sorted(lines)], plurals.lemmas(lines))


def _lines(path: Path, submitted: str | None) -> list[str]:
    """Read the lines; bytes that are not UTF-8 are never part of a word."""
    try:
        atomic.require_submitted(path, submitted, atomic.sha256(path))
        with text_files.open_text(path) as file:
            return file.read().splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read: {reason}; concepts.vocabulary.concepts names it") from None
