"""Contract of a metric. It is light: tables are printed where there is no torch and numpy is not loaded yet."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from hpcddm.evaluation.metrics.need import Need

if TYPE_CHECKING:
    from hpcddm.evaluation.metrics.evaluation import Evaluation


class Better(Enum):
    """Direction in which a metric improves, in words."""

    LOWER = "lower is better"
    HIGHER = "higher is better"
    NEAR_ONE = "1 is real"

    def rank(self, value: float) -> float:
        """Return a number that is lower for a better value."""
        return {Better.LOWER: value, Better.HIGHER: -value, Better.NEAR_ONE: abs(value - 1)}[self]

    def best(self, values: Iterable[float]) -> float:
        """Return the best of at least one value."""
        return min(values, key=self.rank)


class Metric(ABC):
    """A number that compares an arm's samples with as many held-out real images.

    A subclass stands alone in a file of this folder and sets every attribute without a default; raises `TypeError`
    at its definition when one is missing.
    """

    title: ClassVar[str]
    """Title of its column or plot, in lower case but for abbreviations."""
    explanation: ClassVar[str]
    """Definition for readers of the report, as it follows the title and a colon."""
    better: ClassVar[Better]
    format: ClassVar[str]
    """Format specification of its values; '%' at the end marks a share."""
    needs: ClassVar[frozenset[Need]]
    """Parts of the samples' and the real images' `ImageSet` that `compute` reads; the stage evaluate keeps them."""
    order: ClassVar[int]
    """Place among the columns; the lowest one ranks settings."""
    digits: ClassVar[int | None] = None
    """Digits that the page shows of the smallest value, for distances whose scale depends on the features."""
    is_headline: ClassVar[bool] = False
    """Whether it is among the few that the bars of a sweep's plot and its lines on the terminal show."""

    def __init_subclass__(cls) -> None:
        missing = [name for name in Metric.__annotations__ if not hasattr(cls, name)]
        if missing:
            raise TypeError(f"{cls.__module__}.{cls.__name__} lacks {', '.join(missing)}")

    @abstractmethod
    def compute(self, evaluation: "Evaluation") -> float:
        """Compute the value for one arm."""

    @property
    def key(self) -> str:
        """Name of its file; its key in metrics.json and its column in CSV files."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def is_share(self) -> bool:
        """True where values are shown in percent."""
        return self.format.endswith("%")

    def text(self, value: float) -> str:
        """Format a value."""
        return format(value, self.format)

    def text_of(self, values: Mapping[str, float]) -> str:
        """Format its value among those of an arm by key; '' where the report lacks it."""
        return self.text(values[self.key]) if self.key in values else ""
