"""Tags by classes: the probabilities of the run's classifier for an image, and the own class of a real sample."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, UInt8

from hpcddm.config.concepts import TaggerSettings
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import Reader
from hpcddm.errors import UserError
from hpcddm.evaluation.concepts.taggers.base import Tagger, TaggerContext
from hpcddm.models import build_classifier
from hpcddm.runs.unit_keys import CLASSIFIER
from hpcddm.sampling.load_ensemble import load_evaluator

IMAGES_AT_ONCE = 256
THRESHOLD = 0.5


class LabelTaggerSettings(TaggerSettings):
    """Probability of a concept's class by `evaluators.classifier`, for images with classes; it has no settings."""

    def networks(self, experiment: Any) -> list[str]:
        """List the classifier."""
        return [CLASSIFIER]

    def check(self, experiment: Any) -> None:
        """Raise ValueError for images without classes, and for concepts that are looked for in captions."""
        if experiment.data.num_classes is None:
            raise ValueError("names classes, and data.num_classes is not set; take the tagger lit")
        vocabulary = experiment.concepts.vocabulary
        if vocabulary.is_matched:
            raise ValueError(f"knows classes alone, and not the concepts of the vocabulary {vocabulary.name}")


class LabelTagger(Tagger[LabelTaggerSettings]):
    """Probabilities of the classes; of samples, 1 for their own class and 0 for the others."""

    def __init__(self, settings: LabelTaggerSettings, context: TaggerContext) -> None:
        super().__init__(settings, context)
        concepts = context.vocabulary.concepts
        of_none = [concept.name for concept in concepts if concept.label is None]
        if of_none:
            raise UserError(
                f"concepts.tagger: labels knows classes alone, and '{of_none[0]}' of the vocabulary is none"
            )
        self.classes = np.array([concept.label for concept in concepts], dtype=np.int64)
        self.network = load_evaluator(context.experiment, CLASSIFIER, context.folder_of, context.device)
        self.to_model = build_classifier.pixels(context.experiment).to_model

    @torch.no_grad()
    def scores(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n v"]:
        rows = []
        for part in split_into_blocks(range(len(images)), IMAGES_AT_ONCE):
            planes = self.to_model(torch.from_numpy(images[part.start : part.stop]).to(self.context.device))
            # Convolutions of channels-last images, as in a file, differ in their last bits.
            logits = self.network(planes.clone(memory_format=torch.contiguous_format))
            rows.append(logits.softmax(1).cpu().numpy())
        return np.concatenate(rows)[:, self.classes]

    def scores_of(self, reader: Reader, numbers: Numbers) -> Float32[np.ndarray, "n v"]:
        """Return 1 for the class of each sample, and 0 for the others."""
        return (reader.labels(numbers).numpy()[:, None] == self.classes).astype(np.float32)

    @property
    def thresholds(self) -> Float32[np.ndarray, " v"]:
        return np.full(len(self.classes), THRESHOLD, dtype=np.float32)
