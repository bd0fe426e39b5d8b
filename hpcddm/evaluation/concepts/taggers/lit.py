"""lit-score: how well an image fits the name of a concept, by linear maps over two frozen encoders.

It is not a CLIPScore: the encoders were trained neither on captions of images nor together. Each of two heads is
trained on one half of the distinct captions, so that every training sample is scored by the head that was not trained
on its caption (cross-fitting: Chernozhukov et al., arXiv 1608.00060, sec. 3).
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float16, Float32, Int64, UInt8
from pydantic import Field

from hpcddm.config import variants
from hpcddm.config.concepts import TaggerSettings
from hpcddm.config.conditions import TextEncoderSettings
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.config.schema import Positive, default_variant
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import Reader
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.encoders.text.base import TextEncoder, padded_tokens
from hpcddm.errors import require
from hpcddm.evaluation.concepts.taggers.base import Mentions, Tagger, TaggerContext
from hpcddm.evaluation.concepts.taggers.lit_head import HeadTraining, map_features, train_head
from hpcddm.evaluation.concepts.taggers.pairs import TrainingPairs
from hpcddm.evaluation.concepts.taggers.thresholds import ScoreCounts
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import HELD_FEATURES, TAGGER_HALF, THRESHOLD_IMAGES
from hpcddm.runs.ranges import TRAIN

HALVES = 2
IMAGES_AT_ONCE, NAMES_AT_ONCE = 256, 64
FOR_THRESHOLDS = 20_000
"""Training samples, drawn at random, by which thresholds are chosen, at most."""
IMAGES, NAMES, THRESHOLDS = "images", "names", "thresholds"
"""Arrays: maps of the image features (2, width, d + 1), unit vectors of the concepts (2, V, width), thresholds (V,)."""
AboveZero = Annotated[float, Field(gt=0)]


class LitSettings(TaggerSettings):
    """Encoders of the images and of the concepts' names, number of values `width` of their space, and the training.

    A head sees `images` images, so many in a `batch`; scores are cosines, and in the training's softmax they are
    divided by `temperature`.
    """

    is_trained: ClassVar[bool] = True

    image: ImageEncoderSettings = Field(default={"name": "efficientnet_lite0", "size": 96}, validate_default=True)
    text: TextEncoderSettings = default_variant("minilm")
    width: Positive = 256
    images: Positive = 204_800
    batch: Positive = 256
    learning_rate: AboveZero = 1e-3
    weight_decay: Annotated[float, Field(ge=0)] = 1.0
    temperature: AboveZero = 0.05
    max_images: Positive = 200_000
    """Training images whose features are held in memory, at most: rare concepts keep theirs."""

    def check(self, experiment: Any) -> None:
        """Raise ValueError for concepts that no caption mentions."""
        vocabulary = experiment.concepts.vocabulary
        if not vocabulary.is_matched:
            raise ValueError(
                f"learns from captions, and concepts of the vocabulary {vocabulary.name} are looked for in none; take"
                " the tagger labels"
            )


class Lit(Tagger[LitSettings]):
    """Cosines of images and names, by the head that was not trained on a caption, or the mean of both heads."""

    def __init__(self, settings: LitSettings, context: TaggerContext) -> None:
        super().__init__(settings, context)
        self.encoder: ImageEncoder[ImageEncoderSettings] = variants.create(ImageEncoder, settings.image)
        self._arrays: Mapping[str, np.ndarray] = {}

    def fit(
        self, reader: Reader, mentions: Mentions, seed: int, advance: Callable[[int, int], None]
    ) -> dict[str, np.ndarray]:
        """Train both heads and choose the thresholds.

        Raises `UserError` for a vocabulary of one concept, and for captions that mention too few of them.
        """
        pairs, halves = TrainingPairs.of_lists(mentions.concepts), halves_of(mentions.captions)
        self._require_enough(pairs, halves)
        names, rows, shown = self._names(), *self._chosen(pairs, len(halves), seed)
        total = len(rows) + HALVES * self.settings.images
        features = self._features(reader, mentions.numbers[rows], lambda done: advance(done, total))
        pairs, halves = pairs.among(rows), halves[rows]
        heads = []
        for half in range(HALVES):
            before, own = len(rows) + half * self.settings.images, pairs.where(halves == half)

            def seen(images: int, before: int = before) -> None:
                advance(before + images, total)

            heads.append(train_head(features, names, own, self._training, seed, TAGGER_HALF.format(half=half), seen))
        arrays = {IMAGES: np.stack([head.image for head in heads]), NAMES: np.stack([head.names for head in heads])}
        self._arrays = arrays
        # By the captions of some samples, each scored by the head of the others.
        counts = ScoreCounts(len(self.context.vocabulary))
        for part in split_into_blocks(np.searchsorted(rows, shown), IMAGES_AT_ONCE):
            scores = self._heldout_cosines(features[part].astype(np.float32), halves[part])
            mentioned = np.zeros(scores.shape, bool)
            mentioned[pairs.of_rows(part)] = True
            counts.add(scores, mentioned)
        return arrays | {THRESHOLDS: counts.thresholds()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = {name: np.asarray(values) for name, values in arrays.items()}

    def scores(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n v"]:
        """Compute the mean of both heads' cosines."""
        features = self.encoder.encode(images)
        first, second = (self._cosines(features, half) for half in range(HALVES))
        return (first + second) / 2

    def scores_of(self, reader: Reader, numbers: Numbers) -> Float32[np.ndarray, "n v"]:
        """Compute the cosines of images and names: for a training sample by the head that was not trained on it."""
        images = reader.images(numbers)
        if reader.split != TRAIN:
            return self.scores(images)
        return self._heldout_cosines(self.encoder.encode(images), halves_of(reader.captions(numbers)))

    @property
    def thresholds(self) -> Float32[np.ndarray, " v"]:
        return self._arrays[THRESHOLDS]

    def _cosines(self, features: Float32[np.ndarray, "n d"], half: int) -> Float32[np.ndarray, "n v"]:
        return map_features(self._arrays[IMAGES][half], features) @ self._arrays[NAMES][half].T

    def _heldout_cosines(
        self, features: Float32[np.ndarray, "n d"], halves: Int64[np.ndarray, " n"]
    ) -> Float32[np.ndarray, "n v"]:
        """Compute the cosines of each sample by the head of the half that its caption is not in."""
        scores = np.empty((len(features), len(self.context.vocabulary)), np.float32)
        for half in range(HALVES):
            scores[halves != half] = self._cosines(features[halves != half], half)
        return scores

    @property
    def _training(self) -> HeadTraining:
        own = self.settings
        return HeadTraining(
            own.width, own.images, own.batch, own.learning_rate, own.weight_decay, own.temperature, self.context.device
        )

    def _require_enough(self, pairs: TrainingPairs, halves: Int64[np.ndarray, " n"]) -> None:
        for half in range(HALVES):
            count = len(np.unique(pairs.where(halves == half).concepts))
            require(
                count > 1,
                f"concepts.tagger: lit is trained on halves of the captions, and one of them mentions {count} of"
                f" {len(self.context.vocabulary)} concepts, where it needs two; take more concepts, or more captions",
            )

    def _chosen(
        self, pairs: TrainingPairs, count: int, seed: int
    ) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " m"]]:
        """Choose the samples whose features are held in memory, and among them a random part of all samples."""
        most = self.settings.max_images
        random = np.sort(keyed.random_subset(seed, THRESHOLD_IMAGES, count, min(FOR_THRESHOLDS, -(-most // 2))))
        return np.union1d(random, pairs.balanced(most - len(random), seed, HELD_FEATURES)), random

    @torch.no_grad()
    def _names(self) -> Float32[torch.Tensor, "v e"]:
        """Encode the names of all concepts: the means of their tokens' states."""
        encoder: TextEncoder[TextEncoderSettings] = variants.create(TextEncoder, self.settings.text)
        names, rows = [concept.name for concept in self.context.vocabulary.concepts], []
        for part in split_into_blocks(range(len(names)), NAMES_AT_ONCE):
            tokens = padded_tokens(encoder, names[part.start : part.stop])
            states = encoder.encode_tokens(tokens.to(self.context.device))
            # No state of a token is zero.
            rows.append(states.sum(1) / states.ne(0).any(2).sum(1, keepdim=True))
        return torch.cat(rows).float().cpu()

    def _features(
        self, reader: Reader, numbers: Int64[np.ndarray, " n"], advance: Callable[[int], None]
    ) -> Float16[np.ndarray, "n d"]:
        """Encode samples; raises `UserError` for features that are not finite in float16."""
        held = np.empty((len(numbers), self.settings.image.dimensions(self.context.experiment.data)), np.float16)
        for start in range(0, len(numbers), IMAGES_AT_ONCE):
            own = slice(start, start + IMAGES_AT_ONCE)
            # Values beyond the range become infinite; the check below finds them.
            with np.errstate(over="ignore"):
                held[own] = self.encoder.encode(reader.images(numbers[own]))
            name = self.settings.image.name
            require(
                bool(np.isfinite(held[own]).all()),
                f"concepts.tagger.image: features of {name} are not finite, or beyond float16; take another encoder",
            )
            advance(min(own.stop, len(numbers)))
        return held


def halves_of(captions: Sequence[str]) -> Int64[np.ndarray, " n"]:
    """Return the half, 0 or 1, of each caption; a function of its text, without regard to case and spaces."""
    texts = (" ".join(caption.lower().split()) for caption in captions)
    hashes = (hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=1).digest() for text in texts)
    return np.array([value[0] % HALVES for value in hashes], dtype=np.int64)
