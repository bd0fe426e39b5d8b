"""Calibration error of probabilities, and temperature scaling to reduce it (Guo et al., arXiv 1706.04599)."""

import numpy as np

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.02, 1e4
"""Bounds of a temperature, because the likelihood has no maximum if all predictions are right, or all wrong."""
HALVINGS = 60
ALIKE = 1e-6
"""Largest difference between logits that count as equal; no temperature changes their probabilities."""


def probabilities(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Compute softmax(logits / temperature) over the last axis in float64 (eq. 9).

    Args:
        logits: (N, K) logits.
        temperature: Positive temperature.
    """
    return np.exp(log_softmax(logits / temperature))


def nll(logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0) -> float:
    """Compute the mean negative log-likelihood of labels in nats (eq. 4 divided by N).

    Args:
        logits: (N, K) logits.
        labels: (N,) int labels.
        temperature: Positive temperature that divides the logits.
    """
    return float(-np.take_along_axis(log_softmax(logits / temperature), labels[:, None], axis=1).mean())


def ece(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Compute the expected calibration error: the mean of |accuracy - confidence| over bins of confidence (eq. 3).

    Args:
        probabilities: (N, K) rows that sum to one.
        labels: (N,) int labels.
        bins: Number of bins of equal width; each is weighted by its number of samples.

    Examples:
        >>> ece(np.array([[0.75, 0.25]] * 4), np.array([0, 0, 0, 1]))
        0.0
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    # Bins are (m - 1, m] / M, as in the paper.
    bin_of = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(bin_of, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Find the temperature in [0.02, 10000] with the lowest negative log-likelihood (sec. 4.2).

    The negative log-likelihood is convex in b = 1 / T; its derivative is the mean of E_p[z] - z_label.

    Args:
        logits: (N, K) logits.
        labels: (N,) int labels.
    """
    if np.ptp(logits, axis=1).max() < ALIKE:
        return 1.0
    label_logits = np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    low, high = np.log(1 / MAX_TEMPERATURE), np.log(1 / MIN_TEMPERATURE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        expected = (probabilities(logits, np.exp(-middle)) * logits).sum(1)
        low, high = (middle, high) if (expected - label_logits).mean() < 0 else (low, middle)
    return float(np.exp(-(low + high) / 2))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Compute the logarithm of softmax over the last axis of logits (N, K), in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
