"""Evaluators: networks that measure images one by one, for the metrics."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.errors import require
from hpcddm.models import build_classifier
from hpcddm.runs.unit_keys import CLASSIFIER, EXTRACTOR
from hpcddm.sampling import load_ensemble

Images = UInt8[np.ndarray, "n h w c"]
Measurements = dict[str, np.ndarray]
"""Fields of an `ImageSet` by name, a row for each image."""


class ImageEvaluator(ABC):
    """Network that measures images, each independent of the others.

    Args:
        name: Key and label of the network, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def measure(self, images: Images, labels: np.ndarray, captions: Sequence[str]) -> Measurements:
        """Measure some images.

        Args:
            images: (N, H, W, C), uint8.
            labels: (N,) classes that were requested, or that real images have; empty without classes.
            captions: Captions of the images; empty without captions.

        Raises:
            UserError: Values are not finite.
        """
        measured = self.measurements(images, labels, captions)
        for name, values in measured.items():
            _require_finite(self._name, name, values)
        return measured

    @abstractmethod
    def measurements(self, images: Images, labels: np.ndarray, captions: Sequence[str]) -> Measurements:
        """Measure some images; the values are checked by `measure`, which has the same arguments."""


class TrainedEvaluators(ImageEvaluator):
    """The extractor and the classifier that the run trains, those of the two that there are.

    Args:
        experiment: Settings of the experiment.
        folder_of: Function from the key of a unit to its folder.
        device: Device of the networks.
    """

    def __init__(self, experiment: Experiment, folder_of: Callable[[str], Path], device: torch.device) -> None:
        super().__init__("evaluators.extractor")
        load = partial(load_ensemble.load_evaluator, experiment, folder_of=folder_of, device=device)
        self._extractor = None if experiment.evaluators.extractor is None else load(EXTRACTOR)
        self._classifier = None if experiment.evaluators.classifier is None else load(CLASSIFIER)
        self._device = device
        self._pixels = build_classifier.pixels(experiment)

    @torch.no_grad()
    def measurements(self, images: Images, labels: np.ndarray, captions: Sequence[str]) -> Measurements:
        """Give features, logits if the images have classes, and whether the classifier agrees."""
        tensor, measured = self._pixels.to_model(torch.from_numpy(images).to(self._device)), {}
        if self._extractor is not None:
            measured["features"] = self._extractor.features(tensor).cpu().numpy()
            if len(labels):
                measured["logits"] = self._extractor(tensor).cpu().numpy()
        if self._classifier is not None:
            logits = self._classifier(tensor).cpu().numpy()
            _require_finite("evaluators.classifier", "logits", logits)
            measured["agreed"] = logits.argmax(1) == labels
        return measured


class EncoderEvaluator(ImageEvaluator):
    """An encoder of images with public weights.

    Args:
        label: Label of the encoder, which its figures carry.
        settings: Settings of the encoder.

    Raises:
        UserError: The encoder's package prepares images in another way than the label says.
    """

    def __init__(self, label: str, settings: ImageEncoderSettings) -> None:
        super().__init__(f"evaluate.extractors: {label}")
        self._settings = settings
        self._encoder = variants.create(ImageEncoder, settings)
        stated = self._encoder.stated_preparation
        require(
            not stated or (label.endswith(f"-{stated}") and not label.endswith(f"crop-{stated}")),
            f"evaluate.extractors: the package of {settings.name} prepares images by {stated} and not as in {label};"
            " install the version of constraints.txt, or remove the extractor",
        )
        self._encoded: tuple[Sequence[str], np.ndarray] | None = None

    def measurements(self, images: Images, labels: np.ndarray, captions: Sequence[str]) -> Measurements:
        """Give features, the logits of a head, and the cosines with the captions if the encoder reads texts."""
        measured: Measurements = {}
        if self._settings.has_head:
            measured["features"], measured["logits"] = self._encoder.encode_with_logits(images)
        else:
            measured["features"] = self._encoder.encode(images)
        if self._settings.has_text and captions:
            measured["text"] = (_unit(measured["features"]) * self._texts(captions)).sum(1)
        return measured

    def _texts(self, captions: Sequence[str]) -> np.ndarray:
        """Encode captions; all arms have the same ones in turn."""
        if self._encoded is None or self._encoded[0] != captions:
            self._encoded = captions, _unit(self._encoder.text_features(list(captions)))
        return self._encoded[1]


def _require_finite(network: str, name: str, values: np.ndarray) -> None:
    require(
        bool(np.isfinite(values).all()),
        f"{network} gives {name} that are NaN or infinite; look at its weights and their precision",
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors (N, D) to length 1, in float64."""
    vectors = vectors.astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
