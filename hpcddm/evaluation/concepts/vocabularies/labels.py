"""Classes of the images as concepts; nothing is looked for in captions."""

from collections.abc import Sequence
from typing import Any, ClassVar

from hpcddm.config.concepts import VocabularySettings
from hpcddm.evaluation.concepts.vocabularies.base import VocabularySource
from hpcddm.evaluation.concepts.vocabulary import Candidates, Concept, Vocabulary


class LabelVocabularySettings(VocabularySettings):
    """Classes of the experiment."""

    is_matched: ClassVar[bool] = False

    def check(self, experiment: Any) -> None:
        """Raise ValueError for images without classes."""
        if experiment.data.num_classes is None:
            raise ValueError("the images have no classes; set data.num_classes, or take captions or file")


class LabelVocabulary(VocabularySource[LabelVocabularySettings]):
    """The classes in their order."""

    def vocabulary(self, candidates: Candidates, class_names: Sequence[str]) -> Vocabulary:
        return Vocabulary([Concept(name, label) for label, name in enumerate(class_names)])
