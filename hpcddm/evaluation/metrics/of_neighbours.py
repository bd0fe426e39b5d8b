"""Metrics of the balls around points: of the first 10,000 images of both sets and, where there are more, of all."""

from abc import abstractmethod

import numpy as np

from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import NEIGHBOUR_IMAGES
from hpcddm.evaluation.metrics.overlap import DENSITY_NEIGHBOURS, NeighbourhoodOverlap


class OfNeighbours(InOnePass):
    """Reads a metric from the overlap of two sets; name it before `Metric` among the bases."""

    smallest = DENSITY_NEIGHBOURS + 1

    @abstractmethod
    def read(self, overlap: NeighbourhoodOverlap) -> np.ndarray:
        """Return the value of all images, then the values without each tenth, (11,)."""

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Compare the first 10,000 images."""
        return self.read(inputs.overlap)

    def setting(self, images: int) -> str:
        """Return the number of images that are compared."""
        return str(min(images, NEIGHBOUR_IMAGES))
