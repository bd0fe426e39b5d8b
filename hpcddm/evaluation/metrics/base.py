"""Base of the metrics. It imports little, so that tables are printed without torch and before numpy is loaded."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from hpcddm.evaluation.metrics.need import Need

if TYPE_CHECKING:
    import numpy as np

    from hpcddm.evaluation.metrics.metric_inputs import MetricInputs


class Better(Enum):
    """Direction in which a metric improves, as text."""

    LOWER = "lower is better"
    HIGHER = "higher is better"
    NEAR_ONE = "1 is real"

    def rank(self, value: float) -> float:
        """Return a number that is lower for a better value."""
        return {Better.LOWER: value, Better.HIGHER: -value, Better.NEAR_ONE: abs(value - 1)}[self]


class Metric(ABC):
    """A number that compares an arm's samples with as many held-out real images, as one evaluator sees them.

    Each file of this folder defines one subclass, which sets every attribute without a default.

    Raises:
        TypeError: The definition of a subclass lacks an attribute.
    """

    title: ClassVar[str]
    """Title of the metric's column or plot, in lower case except for abbreviations."""
    explanation: ClassVar[str]
    """Definition for readers of the report, written to follow the title and a colon."""
    better: ClassVar[Better]
    format: ClassVar[str]
    """Format specification of the values; a final '%' marks a share."""
    needs: ClassVar[frozenset[Need]]
    """Parts of the `ImageSet`s that `compute` reads."""
    order: ClassVar[int]
    """Position among the columns; the metric with the lowest number leads where there are enough images."""
    digits: ClassVar[int | None] = None
    """Significant digits of the smallest value in the report, for distances whose scale depends on the features."""
    is_headline: ClassVar[bool] = False
    """True for the few metrics in a sweep's plot and in its terminal output."""
    is_column: ClassVar[bool] = False
    """True for a metric of the tables of arms; the others are in metrics.json and in the report's list of figures."""
    reads_training: ClassVar[bool] = False
    """True for a comparison with training images, which has no meaning for training images as samples."""
    is_ranked: ClassVar[bool] = True
    """False for a metric that noise can raise, too, so that a difference is neither better nor worse."""
    smallest: ClassVar[int] = 2
    """Fewest images for which the metric is defined."""

    images_per_feature: ClassVar[int] = 0
    """Fewest images for each feature for which the metric is defined."""

    def __init_subclass__(cls) -> None:
        missing = [name for name in Metric.__annotations__ if not hasattr(cls, name)]
        if missing:
            raise TypeError(f"{cls.__module__}.{cls.__name__} lacks {', '.join(missing)}")

    @abstractmethod
    def compute(self, inputs: "MetricInputs") -> float:
        """Compute the value for one arm; it is finite."""

    def left_out(self, inputs: "MetricInputs") -> "np.ndarray":
        """Compute the value without each tenth of the images, (10,).

        The values are NaN for fewer than ten images. Metrics override it where ten computations would waste time.
        """
        return inputs.over_tenths(self.compute)

    def setting(self, images: int) -> str:
        """Return what values depend on besides the evaluator, such as '100x1000' subsets; '' if on nothing else.

        Args:
            images: Number of images of each set.
        """
        return ""

    def full_key(self, evaluator: str, images: int) -> str:
        """Return the key that only comparable values share, such as 'recall-10000@own'.

        Args:
            evaluator: Label of the network that measured the images.
            images: Number of images of each set.
        """
        setting = self.setting(images)
        return f"{self.key}-{setting}@{evaluator}" if setting else f"{self.key}@{evaluator}"

    @property
    def key(self) -> str:
        """Name of the metric's file; also its key in metrics.json and its column in CSV files."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def is_share(self) -> bool:
        """True if values are shown in percent."""
        return self.format.endswith("%")

    def text(self, value: float) -> str:
        """Format a value."""
        return format(value, self.format)

    def text_of(self, values: Mapping[str, float]) -> str:
        """Format this metric's value.

        Args:
            values: Values of an arm by the keys of the metrics.

        Returns:
            Formatted value; '' if the arm lacks it.
        """
        return self.text(values[self.key]) if self.key in values else ""
