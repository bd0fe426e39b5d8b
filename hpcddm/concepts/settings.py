"""Settings of the analysis of concepts in an experiment's YAML (arXiv 2404.04125)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hpcddm.concepts.taggers.settings import TaggerSettings
from hpcddm.concepts.vocabularies.settings import VocabularySettings
from hpcddm.encoders.perceptual.settings import PerceptualSettings
from hpcddm.schema import Positive, StrictModel


class ConceptSettings(StrictModel):
    """Settings of counting concepts, and of scoring samples of them."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"units"})

    vocabulary: VocabularySettings
    matching: Literal["phrase", "bag"] = "phrase"
    """Captions name a concept of several words where these follow one another, or stand anywhere (arXiv 2404.04125)."""
    tagger: TaggerSettings
    frequency: Literal["text", "image", "joint"] = "joint"
    """Samples that count: whose captions name a concept, whose images show it, or both; where there are both."""
    per_bin: Positive = 12
    """Concepts that are scored, at most, of each half decade of frequency, and of those that no training sample has."""
    least_real: Positive = 3
    """Held-out images that a concept must have, to be scored beside them; where they have captions, so many different
    ones: several drawings of one thing say as much as one."""
    most_real: Positive = 64
    """Held-out images by which a concept's samples are measured, at most."""
    perceptual: PerceptualSettings | None = None
    """Distance by which the diversity of a concept's samples is measured, such as {name: lpips_alex}."""
    samples: Annotated[int, Field(ge=2)] = 16
    """Samples of each concept and arm."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of which concepts are scored; not the experiment's, so that runs of several seeds score the same ones."""
    strategies: list[str] = []
    """Strategies of the ensemble that draw the concepts; by default the first one of the evaluation."""
    each_expert: bool = False
    """True where every expert alone draws each concept, too: so many times the samples of an arm. False where only its
    home expert does."""
    units: Positive = 1
    """Units that draw and score the concepts."""
