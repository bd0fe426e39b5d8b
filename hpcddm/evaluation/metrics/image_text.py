"""Agreement of samples with their captions in the space of an encoder of both (CLIPScore without its factor)."""

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import MeanOfPart
from hpcddm.evaluation.metrics.need import Need


class ImageText(MeanOfPart, Metric):
    """Mean cosine of sample and caption, as it is: neither cut at 0 nor times 2.5 or 100 (cf. arXiv 2104.08718)."""

    title = "image and text"
    explanation = "the mean cosine of an image and its caption, neither clipped at 0 nor multiplied by 2.5 or 100"
    better = Better.HIGHER
    format = ".3f"
    needs = frozenset({Need.TEXT})
    order = 34
    digits = 3
