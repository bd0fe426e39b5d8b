"""Types of the results in manifests that other units and commands read."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from hpcddm.files.checked_reads import Count, InnerPath, OpenRecord, Rule, Unreadable


class Results(dict[str, Any]):
    """Results of a unit; reading a missing key raises `Unreadable` with the manifest's path."""

    file: Path | None = None
    """Manifest that holds the results; None for results of this process, whose missing keys raise `KeyError`."""

    @classmethod
    def read_from(cls, file: Path, values: dict[str, Any]) -> "Results":
        """Return results with these values from the manifest `file`."""
        results = cls(values)
        results.file = file
        return results

    def __missing__(self, key: str) -> Any:
        if self.file is None:
            raise KeyError(key)
        raise Unreadable(self.file, f"lacks the result '{key}'")


def require_flops(flops: int) -> None:
    """Raise `ValueError` for negative FLOPs."""
    if flops < 0:
        raise ValueError("holds FLOPs below zero")


Flops = Annotated[int, Rule(require_flops)]


@dataclass(frozen=True)
class KnownList(OpenRecord):
    """Types of the results about a list or a split."""

    samples: Count
    class_counts: list[Count] = field(default_factory=list)
    other_clusters: Count = 0


@dataclass(frozen=True)
class KnownSnapshot(OpenRecord):
    """Types of the results about a snapshot."""

    images: Count
    train_flops: Flops = 0


@dataclass(frozen=True)
class KnownSampleFile(OpenRecord):
    """Types of the results about a tar."""

    file: str
    size: int
    changed: int | None = None
    collection: str | None = None


@dataclass(frozen=True)
class KnownCount:
    """Types of the results about items that are passed over for one reason."""

    count: Count
    first: list[str]
    is_broken: bool


@dataclass(frozen=True)
class BrokenSample:
    """Types of the entry about one broken sample."""

    tar: str
    key: str
    reason: str


@dataclass(frozen=True)
class KnownSamples(OpenRecord):
    """Types of the results about broken or dropped samples: their number and the first broken ones."""

    samples: Count
    first: list[BrokenSample] = field(default_factory=list)


@dataclass(frozen=True)
class KnownRows:
    """Types of the results about the rows of `data.table`."""

    rows: Count
    with_row: Count
    without_row: Count
    first_without_row: str | None

    def __post_init__(self) -> None:
        """Raise `ValueError` if samples without a row are counted but none is named."""
        if self.without_row and self.first_without_row is None:
            raise ValueError("names no sample without a row")


@dataclass(frozen=True)
class KnownSums:
    """Types of the sums over latents, one value per channel."""

    sums: list[float]
    squares: list[float]
    count: Count

    def __post_init__(self) -> None:
        """Raise `ValueError` if `sums` and `squares` differ in length."""
        if len(self.sums) != len(self.squares):
            raise ValueError("sums and squares are of different channels")


@dataclass(frozen=True)
class KnownResults(OpenRecord):
    """Types of the results that other units and commands read; a manifest may hold further results."""

    images: Count = 0
    samples: Count | dict[str, Count] = 0
    other_clusters: Count = 0
    train_flops: Flops = 0
    sampling_flops: Flops = 0
    skipped_steps: Count = 0
    heldout_accuracy: float = 0.0
    listing: str | None = None
    remark: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    class_counts: list[Count] = field(default_factory=list)
    class_names: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    sizes: list[Count] = field(default_factory=list)
    tars: list[KnownSampleFile] = field(default_factory=list)
    lists: dict[str, KnownList] = field(default_factory=dict)
    splits: dict[str, KnownList] = field(default_factory=dict)
    snapshots: dict[str, KnownSnapshot] = field(default_factory=dict)
    arms: dict[str, dict[str, float]] | list[str] = field(default_factory=list)
    floor: dict[str, float] = field(default_factory=dict)
    start: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    accepted: str | None = None
    passed_over: dict[str, KnownCount] = field(default_factory=dict)
    broken: Count | KnownSamples = 0
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
        """Raise `ValueError` for a snapshot without a number, or a metric without one value per noise level."""
        if not all(name.isdecimal() and name.isascii() for name in self.snapshots):
            raise ValueError("snapshots: has a name that is not a number")
        lines = (self.accuracy, self.accuracy_without_class, self.calibration_error, self.scaled_calibration_error)
        if any(len(line) not in (0, len(self.noise_levels)) for line in (*lines, self.nll, self.scaled_nll)):
            raise ValueError("noise_levels: are not as many as the figures")


@dataclass(frozen=True)
class CaptionIndex:
    """Content of `INDEX`.

    Args:
        captions: Number of distinct captions.
        samples: Number of samples, by split.
        ranges: First and last caption of every range, by name.
    """

    captions: Count
    samples: dict[InnerPath, Count]
    ranges: dict[InnerPath, tuple[Count, Count]]


@dataclass(frozen=True)
class LatentScale(OpenRecord):
    """Shift and scale of the latents, one value per channel, as stored in `SCALE_FILE`."""

    shift: list[float]
    scale: list[float]
