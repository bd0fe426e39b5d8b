"""Base of the taggers, which score the presence of each concept of a vocabulary in an image."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8

from hpcddm.config.experiment import Experiment
from hpcddm.config.variants import S, Variant
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import Reader
from hpcddm.evaluation.concepts.vocabulary import Vocabulary


@dataclass(frozen=True)
class TaggerContext:
    """Inputs of a tagger's constructor, beside its settings."""

    experiment: Experiment
    vocabulary: Vocabulary
    folder_of: Callable[[str], Path]
    """Folder of a unit of the run, by its key, for the networks that the tagger's settings name."""
    device: torch.device


@dataclass(frozen=True)
class Mentions:
    """Training samples whose captions name the concepts: row i of `concepts` belongs to sample `numbers[i]`.

    Samples whose captions name no concept are included, with an empty row, in their share of the data: thresholds are
    chosen by the error rate of the scores.
    """

    numbers: Int64[np.ndarray, " n"]
    concepts: list[Int64[np.ndarray, " _"]]
    captions: list[str]


class Tagger(Variant[S]):
    """Tagger of images; its scores rise with the presence of a concept, and need not be probabilities.

    Creating it raises `UserError` when weights are missing, a package is not installed, or a concept cannot be tagged
    at all.
    """

    def __init__(self, settings: S, context: TaggerContext) -> None:
        super().__init__(settings)
        self.context = context

    def fit(
        self, reader: Reader, mentions: Mentions, seed: int, advance: Callable[[int, int], None]
    ) -> dict[str, np.ndarray]:
        """Train the tagger, and return its parameters as arrays for `load`; only where the settings say `is_trained`.

        reader: of the training images. advance: called with how much is done, and of how much; it may raise.
        """
        raise NotImplementedError(f"{type(self).__name__} is not trained")

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the arrays that `fit` returned; called before all methods below, for a tagger that is trained."""
        raise NotImplementedError(f"{type(self).__name__} is not trained")

    @abstractmethod
    def scores(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n v"]:
        """Compute the score of every concept for images that it was not trained on, each independent of the others."""

    def scores_of(self, reader: Reader, numbers: Numbers) -> Float32[np.ndarray, "n v"]:
        """Compute scores; a trained tagger scores a training sample by a part that was not trained on it."""
        return self.scores(reader.images(numbers))

    @property
    @abstractmethod
    def thresholds(self) -> Float32[np.ndarray, " v"]:
        """Score of every concept from which on an image counts as showing it; infinity for one that it cannot see."""
