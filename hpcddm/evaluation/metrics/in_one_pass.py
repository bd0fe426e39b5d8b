"""Metrics whose values without each tenth of the images come from the pass over the data that the value needs."""

from abc import ABC, abstractmethod

import numpy as np

from hpcddm.evaluation.metrics.metric_inputs import MetricInputs, over_tenths


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
