"""Analysis of the budget curve's rows: FD as a ratio to the monolith's by budget, its intervals, and where it is 1.

All is said of the ratio's logarithm over the logarithm of the budget, with 95 % intervals, the wider of two: of the
jackknife that leaves out a tenth of the samples and of the held-out images at the same places, in all arms and seeds at
once, and of Student's t over seeds. A curve joins the points, or is the mean of a line for each seed. An arm crosses
the monolith where the intervals say that it is behind at one end of the budgets and ahead at the other.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import stdtrit

from hpcddm.errors import UserError
from hpcddm.evaluation.statistics import jackknife
from hpcddm.evaluation.statistics.jackknife import CONFIDENCE, IntervalEstimate
from hpcddm.runs.unit_keys import MONOLITH_ARM

Row = dict[str, str]
CURVE_SWEEPS = ("budget", "budget_longer")
FD, KID, LITE0_KID = "fd", "kid", "lite0_kid"
RULERS = {FD: "FD", KID: "KID", LITE0_KID: "Lite0 KID"}
"""Columns that compare samples with held-out images, and their names: FD and KID by the extractor, KID by Lite0."""
ORACLE = "oracle"
"""Arm that knows the cluster of a held-out image, and so no way of drawing; it is not tuned."""
POINTS = 241
"""Budgets at which a curve is compared with 1."""


@dataclass(frozen=True)
class Curve:
    """One arm of one K against the monolith or another arm: logarithms of a ratio, NaN where a seed lacks a budget."""

    experts: int
    arm: str
    budgets: Float[np.ndarray, " b"]
    log_ratio: Float[np.ndarray, "s b"]
    without: Float[np.ndarray, "s b p"]
    """Without each part of the samples; p = 0 for a ruler of which these are not known."""

    def of_all_seeds(self) -> "Curve":
        """Return the curve at the budgets that all seeds have."""
        shared = np.isfinite(self.log_ratio).all(axis=0)
        return Curve(self.experts, self.arm, self.budgets[shared], self.log_ratio[:, shared], self.without[:, shared])

    def seeds_at(self, index: int) -> Float[np.ndarray, " n"]:
        """Return the values of the seeds that have a budget."""
        return self.log_ratio[self._has(index), index]

    def by_samples(self, index: int) -> IntervalEstimate:
        """Estimate the mean over seeds at a budget, with the jackknife's interval over samples."""
        means = [self.seeds_at(index).mean(), *self.without[self._has(index), index].mean(axis=0)]
        return jackknife.interval(np.array(means), len(means) - 2)

    def by_seeds(self, index: int) -> IntervalEstimate:
        """Estimate it with an interval over seeds, none for a curve of one seed.

        The variance is the mean over all budgets that have several seeds: of two or three values it is by chance far
        too small at some budget. Its degrees of freedom stay those of one budget, for the budgets of a seed are
        snapshots of one training.
        """
        value, seeds = float(self.seeds_at(index).mean()), [self.seeds_at(at) for at in range(len(self.budgets))]
        variances = [np.var(own, ddof=1) for own in seeds if len(own) > 1]
        if not variances:
            return IntervalEstimate(value, None, None)
        degrees = max(map(len, seeds)) - 1
        half = float(stdtrit(degrees, (1 + CONFIDENCE) / 2) * math.sqrt(np.mean(variances) / len(seeds[index])))
        return IntervalEstimate(value, value - half, value + half)

    def points(self) -> list[IntervalEstimate]:
        """Estimate the mean over seeds at every budget, with the wider of the two intervals."""
        return [_wider(self.by_samples(index), self.by_seeds(index)) for index in range(len(self.budgets))]

    def joined(self, at: Float[np.ndarray, " u"]) -> list[IntervalEstimate]:
        """Estimate at some budgets the curve that joins the points; its intervals join those of the points."""
        columns = zip(*((point.value, point.low, point.high) for point in self.points()), strict=True)
        joined = [[None] * len(at) if None in column else self._between(column, at) for column in columns]
        return [IntervalEstimate(*own) for own in zip(*joined, strict=True)]

    def fitted(self, at: Float[np.ndarray, " u"]) -> list[IntervalEstimate]:
        """Estimate at some budgets the mean of the seeds' lines, with the wider of the two intervals."""
        lines = [
            np.polyfit(np.log2(self.budgets), np.column_stack([ratio, without]), 1)
            for ratio, without in zip(self.log_ratio, self.without, strict=True)
        ]
        slopes, levels = np.stack(lines, axis=1)
        return [_of_seeds(slopes * math.log2(budget) + levels) for budget in at]

    def change(self) -> IntervalEstimate:
        """Estimate by how much the logarithm changes from the first to the last budget, paired within seeds."""
        ends = [np.column_stack([self.log_ratio[:, index], self.without[:, index]]) for index in (0, -1)]
        return _of_seeds(ends[1] - ends[0])

    def _has(self, index: int) -> Bool[np.ndarray, " s"]:
        return np.isfinite(self.log_ratio[:, index])

    def _between(self, values: Sequence[float], at: Float[np.ndarray, " u"]) -> list[float]:
        return np.interp(np.log(at), np.log(self.budgets), values).tolist()


def _of_seeds(values: Float[np.ndarray, "s 1+p"]) -> IntervalEstimate:
    """Estimate the mean over seeds of what all samples give, and those without each part."""
    return _wider(jackknife.interval(values.mean(axis=0), values.shape[1] - 2), jackknife.mean(values[:, 0]))


def _wider(*estimates: IntervalEstimate) -> IntervalEstimate:
    """Return the estimate of the widest interval; they have one value."""
    return max(estimates, key=lambda own: -1.0 if own.high is None else own.high - own.value)


@dataclass(frozen=True)
class Stretch:
    """Budgets of which the intervals say the same: 'behind' the monolith, 'ahead', or 'undecided'."""

    side: str
    first: float
    last: float


@dataclass(frozen=True)
class Comparison:
    """A curve beside the monolith, from its smallest to its largest budget.

    crossing: where the ratio is 1 for the last time, of a curve that is behind at one end and ahead at the other;
    between: the last budget of the first stretch, and the first one of the last.
    """

    stretches: list[Stretch]
    crossing: float | None
    between: tuple[float, float]

    def __str__(self) -> str:
        first, *others = self.stretches
        if not others:
            return f"{first.side} at all budgets"
        ends = [*(_rounded(own.last) for own in self.stretches[:-1]), f"{self.stretches[-1].last:,.0f}"]
        parts = [f"{own.side} to {end}" for own, end in zip(self.stretches, ends, strict=True)]
        said = f"from {first.first:,.0f} {', then '.join(parts)}"
        if self.crossing is None:
            return said
        return f"{said}: crosses at {_rounded(self.crossing)} ({' to '.join(map(_rounded, self.between))})"


def compare(at: Float[np.ndarray, " u"], estimates: Sequence[IntervalEstimate]) -> Comparison:
    """Compare the estimates of a curve with 1 at some budgets, in their order; nothing is said of others."""
    sides = [side(estimate) for estimate in estimates]
    numbers = [list(own) for _, own in groupby(range(len(at)), key=sides.__getitem__)]
    stretches = [Stretch(sides[own[0]], float(at[own[0]]), float(at[own[-1]])) for own in numbers]
    between = stretches[0].last, stretches[-1].first
    if {sides[0], sides[-1]} != {"ahead", "behind"}:
        return Comparison(stretches, None, between)
    values = np.array([estimate.value for estimate in estimates])
    last = int(np.flatnonzero(np.sign(values[1:]) != np.sign(values[:-1]))[-1])
    share = values[last] / (values[last] - values[last + 1])
    return Comparison(stretches, float(at[last] * (at[last + 1] / at[last]) ** share), between)


def side(estimate: IntervalEstimate) -> str:
    """Say of a logarithm of a ratio to the monolith: 'behind', 'ahead', or 'undecided' where its interval holds 0."""
    if estimate.low is not None and estimate.low > 0:
        return "behind"
    return "ahead" if estimate.high is not None and estimate.high < 0 else "undecided"


def _rounded(budget: float) -> str:
    return f"{float(f'{budget:.3g}'):,.0f}"


def places(curve: Curve) -> Float[np.ndarray, " u"]:
    """Return the budgets at which a curve is compared with 1, its smallest and largest included."""
    return np.geomspace(curve.budgets[0], curve.budgets[-1], POINTS)


def read(path: Path) -> dict[tuple[str, str], Row]:
    """Read the rows by setting and arm; of rows that stand there twice, as after a merge, the first one.

    Raises `UserError` for a line that lacks columns.
    """
    rows: dict[tuple[str, str], Row] = {}
    if path.exists():
        with path.open(newline="") as file:
            lines = csv.DictReader(file)
            for row in lines:
                if None in row.values() or not row.get("identity"):
                    raise UserError(f"{path}, line {lines.line_num}: columns are missing; restore the file with git")
                rows.setdefault((row["identity"], row["arm"]), row)
    return rows


def curves(rows: Iterable[Row], ruler: str = FD, against: str = MONOLITH_ARM) -> list[Curve]:
    """Pair every arm with the monolith, or another arm of its K, of the same seed and budget.

    ruler: one of `RULERS`; only FD has parts. Arms without two shared budgets are left out. Raises `UserError` where an
    arm has several rows of one seed and budget, such as of several guidance scales, and for a figure that is not
    positive.
    """
    paired: dict[tuple[int, str], dict[tuple[int, int], Row]] = defaultdict(dict)
    for row in rows:
        if row["sweep"] in CURVE_SWEEPS and row[ruler]:
            own, point = paired[int(row["experts"]), row["arm"]], (int(row["seed"]), int(row["budget"]))
            if point in own:
                raise UserError(f"{row['arm']}, seed and budget {point}: two rows; keep those of the frozen recipe")
            if float(row[ruler]) <= 0:
                raise UserError(f"{row['arm']}, seed and budget {point}: {RULERS[ruler]} {row[ruler]} has no ratio")
            own[point] = row
    curves = []
    for (experts, arm), own in sorted(paired.items()):
        if arm not in (MONOLITH_ARM, against):
            reference = paired.get((1 if against == MONOLITH_ARM else experts, against), {})
            pairs = {point: (row, reference[point]) for point, row in own.items() if point in reference}
            curves.append(_curve(experts, arm, pairs, ruler))
    return [curve for curve in curves if len(curve.of_all_seeds().budgets) > 1]


def _curve(experts: int, arm: str, pairs: dict[tuple[int, int], tuple[Row, Row]], ruler: str) -> Curve:
    """Make the curve of the seeds that have several budgets."""
    seeds = sorted({seed for seed, _ in pairs if sum(seed == other for other, _ in pairs) > 1})
    budgets = sorted({budget for seed, budget in pairs if seed in seeds})
    parts = len(next(iter(pairs.values()))[0]["fd_without"].split()) if ruler == FD and pairs else 0
    log_ratio = np.full((len(seeds), len(budgets)), math.nan)
    without = np.full((*log_ratio.shape, parts), math.nan)
    for (seed, budget), (own, reference) in pairs.items():
        if seed in seeds:
            index = seeds.index(seed), budgets.index(budget)
            log_ratio[index] = math.log(float(own[ruler]) / float(reference[ruler]))
            without[index] = (np.log(fd_parts(own)) - np.log(fd_parts(reference)))[:parts]
    return Curve(experts, arm, np.array(budgets, dtype=float), log_ratio, without)


def fd_parts(row: Row) -> Float[np.ndarray, " p"]:
    """Return a row's FD without each tenth of the samples."""
    return np.array([float(value) for value in row["fd_without"].split()])
