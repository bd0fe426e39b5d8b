"""Settings that all vocabularies have in common in an experiment's YAML."""

from typing import Any, ClassVar

from hpcddm.schema import VariantSettings


class VocabularySettings(VariantSettings):
    """Settings of where the concepts come from."""

    room: ClassVar[str] = "concepts/vocabularies"
    reads_captions: ClassVar[bool] = False
    """True for a vocabulary that is made of the captions, which the stage concept_words reads by ranges."""
    is_matched: ClassVar[bool] = True
    """False for concepts that are looked for in no caption, as classes are."""

    @property
    def of_candidates(self) -> dict[str, Any]:
        """Settings that the nouns of captions depend on, without those that choose concepts among them."""
        return {"name": self.name}
