"""Settings that all taggers have in common in an experiment's YAML."""

from typing import Any, ClassVar

from hpcddm.schema import VariantSettings


class TaggerSettings(VariantSettings):
    """Settings of a tagger, which scores the concepts in an image."""

    room: ClassVar[str] = "concepts/taggers"
    is_trained: ClassVar[bool] = False
    """True for a tagger that the stage concept_tagger trains on training images and the concepts of their captions."""
    uses_gpu: ClassVar[bool] = True
    """False for a tagger that computes next to nothing."""

    def networks(self, experiment: Any) -> list[str]:
        """List the keys of units of the run whose networks it uses."""
        return []
