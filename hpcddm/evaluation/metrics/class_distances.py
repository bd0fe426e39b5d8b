"""Distances between images of one class, for the diversity within classes."""

import numpy as np

from hpcddm.evaluation.metrics.neighbours import blocks
from hpcddm.evaluation.metrics.tenth_rows import TENTHS, tenth_of_rows


def class_distances(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute the mean Euclidean distance between features of two samples of one class, averaged over classes.

    It replaces LPIPS within a prompt (arXiv 2603.06741): the same mean, with other features. Divided by the value of an
    equal number of real images, 1 means as diverse as real images.

    Args:
        features: (N, D) features.
        labels: (N,) classes.

    Returns:
        (11,) the value of all samples, then without each tenth. Classes with fewer than 2 samples left do not count;
        NaN without any that does.
    """
    tenths, means = np.eye(TENTHS)[tenth_of_rows(len(labels))], []
    kept = np.concatenate([np.ones((1, TENTHS)), 1 - np.eye(TENTHS)])
    for label in np.unique(labels):
        of_class, of_tenth = features[labels == label], tenths[labels == label]
        sums = sum(of_tenth[rows].T @ (np.sqrt(found) @ of_tenth) for rows, found in blocks(of_class, of_class))
        counts = kept @ of_tenth.sum(0)
        totals = np.einsum("ci,ij,cj->c", kept, sums, kept)
        means.append(np.divide(totals, counts * (counts - 1), out=np.full(len(kept), np.nan), where=counts > 1))
    valid = np.isfinite(means)
    return np.divide(np.nansum(means, axis=0), valid.sum(0), out=np.full(len(kept), np.nan), where=valid.any(0))
