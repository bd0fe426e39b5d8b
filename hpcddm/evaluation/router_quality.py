"""Accuracy, calibration and temperatures of a router on held-out images, by noise level."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import nn

from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.experiment import Experiment
from hpcddm.data import draws
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import Reader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.conditions.base import Condition
from hpcddm.diffusion.objectives.base import LINEAR
from hpcddm.evaluation.metrics.calibration import ece, fit_temperature, nll, probabilities
from hpcddm.runs.layout import Locate

NOISE_LEVELS = tuple((level + 0.5) / 10 for level in range(10))
MEASURED_IMAGES = 2000
"""Largest number of held-out images: measures are taken on one half, temperatures are fitted on the other."""
IMAGES_AT_ONCE = 250


def heldout_numbers(count: int, seed: int) -> Int64[np.ndarray, " n"]:
    """Choose among so many held-out samples at random, so that clusters have their natural frequency."""
    return draws.chosen(seed, "route/heldout", count, MEASURED_IMAGES)


def router_nfe(settings: Experiment, heldout: int) -> int:
    """Count the router's evaluations for measuring and fitting here, with so many held-out images."""
    images = min(heldout, MEASURED_IMAGES)
    measured = images // 2
    fitted = images - measured if settings.router.temperature in TEMPERATURES else 0
    return len(NOISE_LEVELS) * (2 * measured + fitted)


@torch.no_grad()
def quality(
    settings: Experiment,
    router: nn.Module,
    reader: Reader,
    numbers: Int64[np.ndarray, " n"],
    x0_of: Callable[[Numbers], torch.Tensor],
    pause: Callable[[], None],
    locate: Locate | None = None,
) -> tuple[dict[str, Any], list[float]]:
    """Measure the router by noise level and fit the temperatures of the levels: ones where the setting says none.

    router: with its prior corrected, but of temperature 1, on any device; numbers: held-out samples at their natural
    frequency; x0_of: function from numbers to x0 (N, C, H, W); pause: called between blocks of images, may raise;
    locate: finds the unit's inputs. Temperatures are fitted on the logits with the condition, and serve those without
    it, too.
    """
    condition = conditions.build(settings.data, locate)
    logits_of = partial(_logits, settings.seed, router, reader, numbers, x0_of, condition, pause)
    measured, fitted = range(1, len(numbers), 2), range(0, len(numbers), 2)
    conditional, unconditional, clusters = (
        logits_of(measured, True),
        logits_of(measured, False),
        reader.clusters(numbers[measured]).numpy(),
    )
    results: dict[str, Any] = {"noise_levels": list(NOISE_LEVELS)}
    results["accuracy"] = [_accuracy(logits, clusters) for logits in conditional]
    results["accuracy_without_class"] = [_accuracy(logits, clusters) for logits in unconditional]
    results |= _belief(conditional, clusters, [1.0] * len(conditional))
    fit = TEMPERATURES.get(settings.router.temperature)
    if fit is None:
        return results, [1.0] * len(conditional)
    temperatures = fit(logits_of(fitted, True), reader.clusters(numbers[fitted]).numpy())
    results |= {f"scaled_{name}": values for name, values in _belief(conditional, clusters, temperatures).items()}
    return results | {"temperatures": temperatures}, temperatures


def _logits(
    seed: int,
    router: nn.Module,
    reader: Reader,
    numbers: Int64[np.ndarray, " n"],
    x0_of: Callable[[Numbers], torch.Tensor],
    condition: Condition[ConditionSettings],
    pause: Callable[[], None],
    rows: range,
    is_conditional: bool,
) -> np.ndarray:
    """Compute the logits (levels, N, K) at every noise level of the samples whose numbers stand at some places.

    Without condition they are those of the null one.
    """
    device = next(router.parameters()).device
    blocks = []
    for start in range(0, len(rows), IMAGES_AT_ONCE):
        pause()
        block = rows[start : start + IMAGES_AT_ONCE]
        x0 = x0_of(numbers[block]).cpu()
        seen = condition.of(reader, numbers[block]) if is_conditional else condition.null(len(block))
        eps = draws.gaussian(seed, "route/accuracy", block, tuple(x0.shape[1:]))
        levels = [torch.full((len(block),), level) for level in NOISE_LEVELS]
        logits = [router(LINEAR.perturb(x0, eps, t).to(device), t.to(device), seen.to(device)) for t in levels]
        blocks.append(torch.stack(logits).cpu().numpy())
    return np.concatenate(blocks, axis=1)


def _accuracy(logits: np.ndarray, clusters: np.ndarray) -> float:
    return float((logits.argmax(1) == clusters).mean())


def _belief(logits: np.ndarray, clusters: np.ndarray, temperatures: list[float]) -> dict[str, list[float]]:
    """Compute negative log-likelihood and expected calibration error of every level from logits (levels, N, K)."""
    each = list(zip(logits, temperatures, strict=True))
    return {
        "nll": [nll(level, clusters, temperature) for level, temperature in each],
        "calibration_error": [ece(probabilities(level, temperature), clusters) for level, temperature in each],
    }


def _common(logits: np.ndarray, clusters: np.ndarray) -> list[float]:
    common = fit_temperature(np.concatenate(logits), np.tile(clusters, len(logits)))
    return [common] * len(logits)


def _by_level(logits: np.ndarray, clusters: np.ndarray) -> list[float]:
    return [fit_temperature(level, clusters) for level in logits]


TEMPERATURES: dict[str, Callable[[np.ndarray, np.ndarray], list[float]]] = {
    "one": _common,
    "by_level": _by_level,
}
