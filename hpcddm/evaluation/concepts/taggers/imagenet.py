"""Tags by a classifier of ImageNet: a concept's probability is the sum over the classes that it is, or is above of.

Classes are synsets of WordNet 3.0, whose hypernyms say that a tabby is a cat and an animal.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Float32, UInt8
from pydantic import Field

from hpcddm.config import pretrained, variants
from hpcddm.config.concepts import TaggerSettings
from hpcddm.config.pretrained import PretrainedFile
from hpcddm.encoders.image import efficientnet_lite0
from hpcddm.errors import require
from hpcddm.evaluation.concepts import wordnet_nouns
from hpcddm.evaluation.concepts.taggers.base import Tagger, TaggerContext

# Settings need the names of the files, and no torch, which the encoder's own module imports.
WEIGHTS = variants.settings_class("encoders/image", "efficientnet_lite0").pretrained
CLASSES = PretrainedFile(
    name="imagenet_synsets.txt",
    sha256="70002b0ff5de60a3a17a82dbfcff291931f96225ddf941ad2e182fc39e183d15",
    size=10000,
    package="timm==1.0.31",
    path_in_wheel="timm/data/_info/imagenet_synsets.txt",
)
"""Synsets of the 1,000 classes in the order of the network's outputs."""


class ImageNetSettings(TaggerSettings):
    """Side `size` to which images are resized, and probability from which on an image counts as showing a concept."""

    pretrained: ClassVar[tuple[PretrainedFile, ...]] = (*WEIGHTS, CLASSES)
    downloads: ClassVar[tuple[str, ...]] = ("wordnet",)

    size: Literal[64, 96, 128] = 128
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.5


class ImageNet(Tagger[ImageNetSettings]):
    """Sums of the probabilities of EfficientNet-Lite0, to be trusted for photographs and not for drawings.

    It uses the most frequent sense of a noun that is above a class; it never detects a concept without such a sense.
    """

    def __init__(self, settings: ImageNetSettings, context: TaggerContext) -> None:
        super().__init__(settings, context)
        encoder = efficientnet_lite0.ImageNetFeaturesSettings(name="efficientnet_lite0", size=settings.size)
        self.encoder = efficientnet_lite0.ImageNetFeatures(encoder)
        nouns, synsets = wordnet_nouns.load_wordnet(), pretrained.find_verified(CLASSES).read_text().split()
        numbers = [int(synset.removeprefix("n")) for synset in synsets]
        above = [nouns.hypernyms(number) | {number} for number in numbers]
        self.kinds = np.zeros((len(context.vocabulary), len(numbers)), np.float32)
        """1 where a class, by column, is a concept, by row, or a kind of it."""
        for row, concept in zip(self.kinds, context.vocabulary.concepts, strict=True):
            senses = ([sense in more for more in above] for sense in nouns.synsets(concept.name.lower()))
            row[:] = next((kinds for kinds in senses if any(kinds)), False)
        require(bool(self.kinds.any()), "concepts.tagger: no concept is a class of ImageNet, or above one")

    def scores(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n v"]:
        return self.encoder.probabilities(images) @ self.kinds.T

    @property
    def thresholds(self) -> Float32[np.ndarray, " v"]:
        return np.where(self.kinds.any(1), np.float32(self.settings.threshold), np.float32(np.inf))
