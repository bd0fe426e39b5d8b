"""Metrics whose values without each tenth of the images come from the pass over the data that the value needs."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from hpcddm.evaluation.metrics.metric_inputs import MetricInputs, means_left_out, over_tenths
from hpcddm.evaluation.metrics.need import Need


class InOnePass(ABC):
    """Computes a metric and its values without each tenth together; name it before `Metric` among the bases."""

    @abstractmethod
    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Compute the value of all images, then the values without each tenth, (11,)."""

    def compute(self, inputs: MetricInputs) -> float:
        """Return the value of all images."""
        return float(inputs.once(self.cases)[0])

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Return the values without each tenth, (10,)."""
        return over_tenths(inputs.samples.count, lambda tenth: float(inputs.once(self.cases)[tenth + 1]))


class MeanOfPart:
    """Averages the one part of the measured samples that a metric needs; name it before `Metric` among the bases."""

    needs: ClassVar[frozenset[Need]]

    def compute(self, inputs: MetricInputs) -> float:
        """Average over the samples, or over their conditions."""
        return float(inputs.samples.part(*self.needs).mean(dtype=np.float64))

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Average over those of the other tenths."""
        return means_left_out(inputs.samples.part(*self.needs))
