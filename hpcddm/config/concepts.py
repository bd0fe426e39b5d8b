"""Settings of the analysis of concepts in an experiment's YAML (arXiv 2404.04125)."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hpcddm.config.image_encoders import PerceptualSettings
from hpcddm.config.schema import Positive, StrictModel, VariantSettings


class TaggerSettings(VariantSettings):
    """Settings of a tagger, which scores the concepts in an image."""

    package: ClassVar[str] = "evaluation/concepts/taggers"
    is_trained: ClassVar[bool] = False
    """True for a tagger that concept_tags/tagger trains on training images and the concepts of their captions."""
    uses_gpu: ClassVar[bool] = True
    """False for a tagger that computes next to nothing."""

    def networks(self, experiment: Any) -> list[str]:
        """List the keys of units of the run whose networks it uses."""
        return []


class VocabularySettings(VariantSettings):
    """Settings of the source of the concepts."""

    package: ClassVar[str] = "evaluation/concepts/vocabularies"
    reads_captions: ClassVar[bool] = False
    """True for a vocabulary made from the captions, which the stage concept_vocabulary reads by ranges."""
    is_matched: ClassVar[bool] = True
    """False for concepts that are not searched for in captions, such as classes."""

    @property
    def of_candidates(self) -> dict[str, Any]:
        """Settings that the nouns of captions depend on, without those that choose concepts among them."""
        return {"name": self.name}


class ConceptSettings(StrictModel):
    """Settings of counting concepts, and of scoring samples of them."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"units"})

    vocabulary: VocabularySettings
    matching: Literal["phrase", "bag"] = "phrase"
    """Captions name a concept of several words if these are consecutive, or anywhere in it (arXiv 2404.04125)."""
    tagger: TaggerSettings
    frequency: Literal["text", "image", "joint"] = "joint"
    """Samples that count: whose captions name a concept, whose images show it, or both; where there are both."""
    per_bin: Positive = 12
    """Concepts that are scored, at most, of each half decade of frequency, and of those that no training sample has."""
    min_real: Positive = 3
    """Held-out images that a concept must have, to be scored beside them; where they have captions, so many different
    ones: several drawings of one thing say as much as one."""
    max_real: Positive = 64
    """Held-out images by which a concept's samples are measured, at most."""
    perceptual: PerceptualSettings | None = None
    """Distance by which the diversity of a concept's samples is measured, such as {name: lpips_alex}."""
    samples: Annotated[int, Field(ge=2)] = 16
    """Samples of each concept and arm."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed that selects the scored concepts; not the experiment's: runs of several seeds score the same ones."""
    strategies: list[str] = []
    """Strategies of the ensemble that draw the concepts; by default the first one of the evaluation."""
    each_expert: bool = False
    """True where every expert alone draws each concept, too: so many times the samples of an arm. False where only its
    home expert does."""
    units: Positive = 1
    """Units that draw and score the concepts."""
