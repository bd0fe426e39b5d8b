"""Accuracy, calibration and temperatures of a router on held-out images, by noise level."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import nn

from hpcddm.config.experiment import Experiment
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import Reader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.objectives.base import LINEAR
from hpcddm.evaluation.metrics.calibration import ece, fit_temperature, nll, probabilities
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import ROUTER_IMAGES, ROUTER_NOISE
from hpcddm.runs.run_dir import Locate
from hpcddm.runs.unit_keys import ROUTER
from hpcddm.training.meters import diverged_error, varies

NOISE_LEVELS = tuple((level + 0.5) / 10 for level in range(10))
MEASURED_IMAGES = 2000
"""Largest number of held-out images; one half is for the measures, the other for fitting temperatures."""
IMAGES_AT_ONCE = 250


def heldout_numbers(count: int, seed: int) -> Int64[np.ndarray, " n"]:
    """Choose held-out samples at random, so that the clusters keep their natural frequencies.

    Args:
        count: Number of held-out samples.
        seed: Seed of the experiment.

    Returns:
        (N,) numbers of at most `MEASURED_IMAGES` samples.
    """
    return keyed.random_subset(seed, ROUTER_IMAGES, count, MEASURED_IMAGES)


def router_nfe(experiment: Experiment, heldout: int) -> int:
    """Count the router's evaluations in `measure_quality` for a number of held-out images."""
    images = min(heldout, MEASURED_IMAGES)
    measured = images // 2
    fitted = images - measured if experiment.router.temperature in TEMPERATURES else 0
    return len(NOISE_LEVELS) * (2 * measured + fitted)


@torch.no_grad()
def measure_quality(
    experiment: Experiment,
    router: nn.Module,
    reader: Reader,
    numbers: Int64[np.ndarray, " n"],
    x0_of: Callable[[Numbers], torch.Tensor],
    pause: Callable[[], None],
    locate: Locate | None = None,
) -> tuple[dict[str, Any], list[float]]:
    """Measure the router at every noise level and fit temperatures.

    Temperatures are fitted on logits with the condition and are also used without it.

    Args:
        experiment: Settings of the experiment.
        router: Router with corrected prior and temperature 1, on any device.
        reader: Reader of the held-out samples.
        numbers: (N,) held-out samples at their natural frequencies.
        x0_of: Function from sample numbers to x0 (N, C, H, W).
        pause: Function that is called between blocks of images and may raise, for example `Stopped`.
        locate: Function that locates the inputs of the unit.

    Returns:
        Measures by name with one value per noise level, and the temperatures: ones if the settings ask for none.

    Raises:
        UserError: A trained router answers the same whatever it sees.
    """
    condition, device = conditions.create_condition(experiment.data, locate), next(router.parameters()).device

    def logits_of(rows: range, is_conditional: bool) -> np.ndarray:
        """Compute the logits (levels, N, K) of samples at every noise level; rows: their positions in `numbers`."""
        blocks = []
        for block in split_into_blocks(rows, IMAGES_AT_ONCE):
            pause()
            own, x0 = numbers[block], x0_of(numbers[block]).cpu()
            asked = (condition.of_samples(reader, own) if is_conditional else condition.null(len(block))).to(device)
            eps = keyed.gaussian(experiment.seed, ROUTER_NOISE, block, tuple(x0.shape[1:]))
            levels = [torch.full((len(block),), level) for level in NOISE_LEVELS]
            logits = [router(LINEAR.perturb(x0, eps, t).to(device), t.to(device), asked) for t in levels]
            blocks.append(torch.stack(logits).cpu().numpy())
        return np.concatenate(blocks, axis=1)

    measured, fitted = range(1, len(numbers), 2), range(0, len(numbers), 2)
    conditional, unconditional = (logits_of(measured, is_conditional) for is_conditional in (True, False))
    clusters = reader.clusters(numbers[measured]).numpy()
    training = experiment.router.training
    if training is not None and experiment.cluster.experts > 1 and not varies(conditional):
        raise diverged_error(ROUTER, "the router answers the same for all held-out images", training)
    results: dict[str, Any] = {"noise_levels": list(NOISE_LEVELS)}
    results["accuracy"] = [_accuracy(logits, clusters) for logits in conditional]
    results["accuracy_without_class"] = [_accuracy(logits, clusters) for logits in unconditional]
    results |= _belief(conditional, clusters, [1.0] * len(conditional))
    fit = TEMPERATURES.get(experiment.router.temperature)
    if fit is None:
        return results, [1.0] * len(conditional)
    temperatures = fit(logits_of(fitted, True), reader.clusters(numbers[fitted]).numpy())
    results |= {f"scaled_{name}": values for name, values in _belief(conditional, clusters, temperatures).items()}
    return results | {"temperatures": temperatures}, temperatures


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
