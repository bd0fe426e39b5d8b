"""Calibration error of probabilities, and temperature scaling that reduces it (Guo et al., arXiv 1706.04599)."""

import numpy as np

COLDEST, HOTTEST = 0.02, 1e4
"""Bounds of a temperature: where all predictions are right, or all wrong, the likelihood has no maximum."""
HALVINGS = 60
ALIKE = 1e-6
"""Largest difference of logits that count as uniform: no temperature changes their probabilities."""


def probabilities(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Compute softmax(logits / temperature) over the last axis, float64 (N, K) (eq. 9)."""
    return np.exp(_log_softmax(logits / temperature))


def nll(logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0) -> float:
    """Compute the mean negative log-likelihood in nats of labels (N,) under logits (N, K) / temperature (eq. 4 / N)."""
    return float(-np.take_along_axis(_log_softmax(logits / temperature), labels[:, None], axis=1).mean())


def ece(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Compute the expected calibration error: mean |accuracy - confidence| over bins of confidence (eq. 3).

    probabilities: (N, K), rows summing to one; labels: (N,) int; bins: of equal width, weighted by their samples.
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    # Bins are (m - 1, m] / M, as in the paper.
    bin_of = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(bin_of, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Find the temperature in [0.02, 10000] of lowest negative log-likelihood (sec. 4.2); logits: (N, K), labels: (N,).

    The likelihood is convex in b = 1 / T, and its slope there is the mean of E_p[z] - z_label.
    """
    if np.ptp(logits, axis=1).max() < ALIKE:
        return 1.0
    label_logits = np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    low, high = np.log(1 / HOTTEST), np.log(1 / COLDEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        expected = (probabilities(logits, np.exp(-middle)) * logits).sum(1)
        low, high = (middle, high) if (expected - label_logits).mean() < 0 else (low, middle)
    return float(np.exp(-(low + high) / 2))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
