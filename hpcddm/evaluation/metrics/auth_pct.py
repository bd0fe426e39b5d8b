"""Share of samples that are not copies of training images (AuthPct; Alaa et al., arXiv 2102.08921)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.neighbours import blocks
from hpcddm.evaluation.metrics.tenth_rows import TENTHS, kept_rows, tenth_rows


class AuthPct(InOnePass, Metric):
    """Share of samples farther from their nearest training image than that is from its nearest other one (sec. 2.3).

    More are fewer copies. For images as real as the training images it is about one half; noise has more.
    """

    title = "authentic"
    explanation = (
        "the share of samples that are farther from the nearest training image than that image is from the nearest"
        " other one; copies lower it, but samples unlike any training image raise it"
    )
    better = Better.HIGHER
    format = ".1%"
    needs = frozenset({Need.FEATURES})
    order = 76
    is_ranked = False
    reads_training = True

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the samples; a tenth is left out of samples and training images alike."""
        samples = inputs.samples.part(Need.FEATURES)
        distances, places = _nearest_by_tenth(samples, inputs.train.part(Need.FEATURES))
        shares = []
        for case, kept in enumerate(kept_rows(len(samples))):
            tenths = np.arange(TENTHS) != case - 1
            nearest = np.where(tenths, distances, np.inf).argmin(1)[:, None]
            place = np.take_along_axis(places, nearest, 1)[:, 0]
            reach = inputs.train.reach[:, tenths].min(1)[place]
            shares.append((np.take_along_axis(distances, nearest, 1)[:, 0] > reach)[kept].mean())
        return np.array(shares)

    def setting(self, images: int) -> str:
        """Return the number of training images: the more there are, the nearer is the nearest."""
        return str(images)


def _nearest_by_tenth(points: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest of other points in each of their tenths: squared distances and places, (N, 10) each."""
    distances = np.full((len(points), TENTHS), np.inf)
    places = np.zeros((len(points), TENTHS), dtype=np.int64)
    for rows, found in blocks(points, among):
        for tenth, columns in enumerate(tenth_rows(len(among))):
            if columns.stop > columns.start:
                nearest = found[:, columns].argmin(1)
                places[rows, tenth] = nearest + columns.start
                distances[rows, tenth] = found[np.arange(len(found)), nearest + columns.start]
    return distances, places
