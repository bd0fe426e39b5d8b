"""Metrics of the balls around points: of the first 10,000 images of both sets and, where there are more, of all."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from hpcddm.evaluation.metrics.base import Better
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import NEIGHBOUR_IMAGES, Need
from hpcddm.evaluation.metrics.overlap import DENSITY_NEIGHBOURS, NeighbourhoodOverlap


class OfAllNeighbours(InOnePass):
    """Reads a metric from the overlap of all samples with real images; name it before `Metric` among the bases."""

    better = Better.HIGHER
    format: ClassVar[str] = ".1%"
    needs = frozenset({Need.FEATURES})
    smallest: ClassVar[int] = NEIGHBOUR_IMAGES + 1

    @abstractmethod
    def read(self, overlap: NeighbourhoodOverlap) -> np.ndarray:
        """Return the value of all images, then the values without each tenth, (11,)."""

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Compare all images."""
        return self.read(inputs.overlap_of_all)

    def setting(self, images: int) -> str:
        """Return the numbers of real images and of samples."""
        return f"{NEIGHBOUR_IMAGES}x{images}"


class OfNeighbours(OfAllNeighbours):
    """Reads a metric from the overlap of the first images of both sets."""

    smallest = DENSITY_NEIGHBOURS + 1
    is_column = True

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Compare the first 10,000 images."""
        return self.read(inputs.overlap)

    def setting(self, images: int) -> str:
        """Return the number of images that are compared."""
        return str(min(images, NEIGHBOUR_IMAGES))
