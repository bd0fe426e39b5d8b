"""Agreement of samples with their captions in the space of an encoder of both (CLIPScore without its factor)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs, means_left_out
from hpcddm.evaluation.metrics.need import Need


class ImageText(Metric):
    """Mean cosine of sample and caption, as it is: neither cut at 0 nor times 2.5 or 100 (cf. arXiv 2104.08718)."""

    title = "image and text"
    explanation = "the mean cosine of an image and its caption, neither clipped at 0 nor multiplied by 2.5 or 100"
    better = Better.HIGHER
    format = ".3f"
    needs = frozenset({Need.TEXT})
    order = 34
    digits = 3

    def compute(self, inputs: MetricInputs) -> float:
        """Average over the samples."""
        return float(inputs.samples.part(Need.TEXT).mean(dtype=np.float64))

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the samples of the other tenths."""
        return means_left_out(inputs.samples.part(Need.TEXT))
