"""How right a router is, how far it can be believed, and its temperatures: on held-out images, by noise level."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from hpcddm.config import Experiment
from hpcddm.data import noise
from hpcddm.data.reader import TarReader, to_tensor
from hpcddm.metrics.calibration import ece, fit_temperature, nll, probabilities
from hpcddm.objectives import path

NOISE_LEVELS = tuple((level + 0.5) / 10 for level in range(10))
MEASURED_IMAGES = 2000
"""Held-out images that are looked at: temperatures are fitted on one half, everything is measured on the other."""
IMAGES_AT_ONCE = 250


def heldout_rows(samples: np.ndarray, seed: int) -> np.ndarray:
    """The held-out samples that are looked at: a random choice, so that clusters have their natural frequency."""
    return samples[noise.permutation(seed, "route/heldout", len(samples))[:MEASURED_IMAGES]]


@torch.no_grad()
def quality(
    settings: Experiment, router: nn.Module, reader: TarReader, pause: Callable[[], None]
) -> tuple[dict[str, Any], list[float]]:
    """Facts by noise level, and the temperatures of the levels: ones where the setting says none.

    router: with its prior corrected, but of temperature 1, on any device; reader: held-out images at their natural
    frequency; pause: called between blocks of images, may raise. Temperatures are fitted on the logits with the class,
    and serve those without it, too.
    """
    known, unknown, clusters = _logits(settings, router, reader, pause)
    fitted, measured = slice(0, None, 2), slice(1, None, 2)
    temperatures = TEMPERATURES[settings.router.temperature](known[:, fitted], clusters[fitted])
    own = clusters[measured]
    facts: dict[str, Any] = {"noise_levels": list(NOISE_LEVELS)}
    facts["accuracy"] = [_accuracy(logits[measured], own) for logits in known]
    facts["accuracy_without_class"] = [_accuracy(logits[measured], own) for logits in unknown]
    facts |= _belief(known[:, measured], own, [1.0] * len(known))
    if settings.router.temperature != "none":
        facts |= {f"scaled_{name}": values for name, values in _belief(known[:, measured], own, temperatures).items()}
        facts["temperatures"] = temperatures
    return facts, temperatures


def _logits(
    settings: Experiment, router: nn.Module, reader: TarReader, pause: Callable[[], None]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits with and without the class, (levels, N, K) each, and the clusters (N,)."""
    device = next(router.parameters()).device
    found: list[list[np.ndarray]] = []
    for start in range(0, len(reader), IMAGES_AT_ONCE):
        pause()
        rows = range(start, min(start + IMAGES_AT_ONCE, len(reader)))
        x0, labels = to_tensor(reader.images(rows)), reader.labels(rows)
        eps = noise.gaussian(settings.seed, "route/accuracy", rows, tuple(x0.shape[1:]))
        block = []
        for classes in (labels, torch.full_like(labels, settings.data.num_classes)):
            for level in NOISE_LEVELS:
                t = torch.full((len(rows),), level)
                noisy = path.linear(x0, eps, t)
                block.append(router(noisy.to(device), t.to(device), classes.to(device)).cpu().numpy())
        found.append(np.stack(block))
    known, unknown = np.split(np.concatenate(found, axis=1), 2)
    return known, unknown, reader.clusters(range(len(reader))).numpy()


def _accuracy(logits: np.ndarray, clusters: np.ndarray) -> float:
    return float((logits.argmax(1) == clusters).mean())


def _belief(logits: np.ndarray, clusters: np.ndarray, temperatures: list[float]) -> dict[str, list[float]]:
    """Negative log-likelihood and expected calibration error of every level, logits being (levels, N, K)."""
    each = list(zip(logits, temperatures, strict=True))
    return {
        "nll": [nll(one, clusters, temperature) for one, temperature in each],
        "calibration_error": [ece(probabilities(one, temperature), clusters) for one, temperature in each],
    }


def _none(logits: np.ndarray, clusters: np.ndarray) -> list[float]:
    return [1.0] * len(logits)


def _one(logits: np.ndarray, clusters: np.ndarray) -> list[float]:
    common = fit_temperature(np.concatenate(logits), np.tile(clusters, len(logits)))
    return [common] * len(logits)


def _by_level(logits: np.ndarray, clusters: np.ndarray) -> list[float]:
    return [fit_temperature(level, clusters) for level in logits]


TEMPERATURES: dict[str, Callable[[np.ndarray, np.ndarray], list[float]]] = {
    "none": _none,
    "one": _one,
    "by_level": _by_level,
}
