"""Base of the vocabularies: they say which concepts are counted."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

from hpcddm.config.variants import S, Variant
from hpcddm.evaluation.concepts.vocabulary import Candidates, Vocabulary


class VocabularySource(Variant[S]):
    """Source of the concepts; creating it raises `UserError` when a package or a file that it needs is missing."""

    def candidates(self, captions: Sequence[str], advance: Callable[[int], None]) -> Candidates:
        """Collect the nouns of some captions; only where the settings say `reads_captions`.

        advance: called with the number of captions that are done; it may raise.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no captions")

    @abstractmethod
    def vocabulary(self, candidates: Candidates, class_names: Sequence[str]) -> Vocabulary:
        """Return the concepts, in alphabetical order or that of the classes.

        candidates: of all captions, empty where it reads none; class_names: none for images without classes. Raises
        `UserError` naming the key when no concept is left.
        """
