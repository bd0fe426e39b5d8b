"""Types of the results in manifests, as far as other units and commands read them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from hpcddm.files import reading
from hpcddm.files.reading import Unreadable


class Results(dict[str, Any]):
    """Results of a unit; to read one that its manifest lacks raises `Unreadable` naming the file."""

    file: Path | None = None
    """The manifest that they were read from; None for those of this process."""

    @classmethod
    def read_from(cls, file: Path, values: dict[str, Any]) -> "Results":
        """Return the results that a manifest has."""
        results = cls(values)
        results.file = file
        return results

    def __missing__(self, key: str) -> Any:
        if self.file is None:
            raise KeyError(key)
        raise Unreadable(self.file, f"lacks the result '{key}'")


@dataclass(frozen=True)
class KnownList:
    """Types of what is known of a list, or of a split."""

    __pydantic_config__: ClassVar = reading.OPEN

    samples: int
    class_counts: list[int] = field(default_factory=list)
    foreign: int = 0

    def __post_init__(self) -> None:
        """Raise `ValueError` for a count that cannot be."""
        reading.require_counts(self.samples, self.foreign, *self.class_counts)


@dataclass(frozen=True)
class KnownSnapshot:
    """Types of what is known of a snapshot."""

    __pydantic_config__: ClassVar = reading.OPEN

    images: int
    train_flops: int = 0

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number below zero."""
        reading.require_counts(self.images)
        require_flops(self.train_flops)


@dataclass(frozen=True)
class KnownTar:
    """Types of what is known of a tar."""

    __pydantic_config__: ClassVar = reading.OPEN

    file: str
    size: int
    changed: int | None = None
    collection: str | None = None


@dataclass(frozen=True)
class KnownCount:
    """Types of what is known of the items that are passed over for one reason."""

    count: int
    first: list[str]
    is_broken: bool

    def __post_init__(self) -> None:
        """Raise `ValueError` for a count that cannot be."""
        reading.require_counts(self.count)


@dataclass(frozen=True)
class BrokenSample:
    """Types of what names a broken sample."""

    tar: str
    key: str
    reason: str


@dataclass(frozen=True)
class KnownSamples:
    """Types of what is known of samples that were broken or dropped: how many, and the first that were broken."""

    __pydantic_config__: ClassVar = reading.OPEN

    samples: int
    first: list[BrokenSample] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise `ValueError` for a count that cannot be."""
        reading.require_counts(self.samples)


@dataclass(frozen=True)
class KnownRows:
    """Types of what is known of the rows of `data.table`."""

    rows: int
    with_row: int
    without_row: int
    first_without_row: str | None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a count that cannot be, and for a sample without a row that has no name."""
        reading.require_counts(self.rows, self.with_row, self.without_row)
        if self.without_row and self.first_without_row is None:
            raise ValueError("names no sample without a row")


@dataclass(frozen=True)
class KnownSums:
    """Types of the sums over latents, channel by channel."""

    sums: list[float]
    squares: list[float]
    count: int

    def __post_init__(self) -> None:
        """Raise `ValueError` for a count that cannot be, and for other channels here than there."""
        reading.require_counts(self.count)
        if len(self.sums) != len(self.squares):
            raise ValueError("sums and squares are of different channels")


@dataclass(frozen=True)
class KnownResults:
    """Types of the results that are read again; a manifest may hold others beside them."""

    __pydantic_config__: ClassVar = reading.OPEN

    images: int = 0
    samples: int | dict[str, int] = 0
    foreign: int = 0
    train_flops: int = 0
    sampling_flops: int = 0
    skipped_steps: int = 0
    heldout_accuracy: float = 0.0
    listing: str | None = None
    remark: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    class_counts: list[int] = field(default_factory=list)
    class_names: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    tars: list[KnownTar] = field(default_factory=list)
    lists: dict[str, KnownList] = field(default_factory=dict)
    splits: dict[str, KnownList] = field(default_factory=dict)
    snapshots: dict[str, KnownSnapshot] = field(default_factory=dict)
    arms: dict[str, dict[str, float]] | list[str] = field(default_factory=list)
    floor: dict[str, float] = field(default_factory=dict)
    start: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
    passed_over: dict[str, KnownCount] = field(default_factory=dict)
    broken: int | KnownSamples = 0
    dropped: KnownSamples | None = None
    table: KnownRows | None = None
    statistics: KnownSums | None = None
    noise_levels: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    accuracy_without_class: list[float] = field(default_factory=list)
    calibration_error: list[float] = field(default_factory=list)
    scaled_calibration_error: list[float] = field(default_factory=list)
    nll: list[float] = field(default_factory=list)
    scaled_nll: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise `ValueError` for a count below zero, and for a line of figures of other noise levels."""
        samples = self.samples.values() if isinstance(self.samples, dict) else (self.samples,)
        broken = self.broken if isinstance(self.broken, int) else 0
        counts = (self.images, self.foreign, self.skipped_steps, broken)
        reading.require_counts(*samples, *counts, *self.class_counts, *self.sizes)
        require_flops(self.train_flops, self.sampling_flops)
        if not all(name.isdecimal() and name.isascii() for name in self.snapshots):
            raise ValueError("snapshots: has a name that is not a number")
        lines = (self.accuracy, self.accuracy_without_class, self.calibration_error, self.scaled_calibration_error)
        if any(len(line) not in (0, len(self.noise_levels)) for line in (*lines, self.nll, self.scaled_nll)):
            raise ValueError("noise_levels: are not as many as the figures")


def require_flops(*flops: int) -> None:
    """Raise `ValueError` for FLOPs below zero."""
    if min(flops) < 0:
        raise ValueError("holds FLOPs below zero")


@dataclass(frozen=True)
class Index:
    """Content of `INDEX`: numbers of distinct captions and of samples by split, and the captions of every range."""

    captions: int
    samples: dict[str, int]
    ranges: dict[str, tuple[int, int]]

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number below zero, and for a name that leads out of the run."""
        reading.require_counts(
            self.captions, *self.samples.values(), *(edge for both in self.ranges.values() for edge in both)
        )
        for name in (*self.samples, *self.ranges):
            reading.require_inside(name)


@dataclass(frozen=True)
class Scale:
    """Shift and scale of the latents, one for each channel, as the file has them."""

    __pydantic_config__: ClassVar = reading.OPEN

    shift: list[float]
    scale: list[float]
