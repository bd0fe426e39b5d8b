"""Analysis of the budget curve's rows: FD as a ratio to the monolith's by budget, its intervals, and where it is 1.

All is said of the ratio's logarithm over the logarithm of the budget. 95 % intervals at a budget are the wider of two:
of the jackknife that leaves out a tenth of the samples and of the held-out images at the same places, in all arms and
seeds at once, and of the t test over seeds. The curve is a line for each seed, and their mean; or it joins the points,
as their intervals are joined. An arm crosses the monolith where the intervals say that it is behind at some budget and
ahead at another; the crossing's interval holds the budgets of which they say neither.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from hpcddm.errors import UserError
from hpcddm.pipeline.evaluate import MONOLITH_ARM
from hpcddm.uncertainty import jackknife
from hpcddm.uncertainty.distributions import t_quantile
from hpcddm.uncertainty.jackknife import CONFIDENCE, Estimate

Row = dict[str, str]
CURVE_SWEEPS = ("budget", "budget_longer")
FD, LITE0_KID = "fd", "lite0_kid"
RULERS = {FD: "FD", LITE0_KID: "KID by Lite0"}
"""Figures of samples that are compared, and their names; EfficientNet-Lite0 is the second ruler."""
POINTS = 241
"""Budgets at which a curve is compared with 1."""


@dataclass(frozen=True)
class Curve:
    """One arm of one K against the monolith: logarithms of a figure's ratio, NaN where a seed has no such budget."""

    experts: int
    arm: str
    budgets: Float[np.ndarray, " b"]
    ratio: Float[np.ndarray, "s b"]
    without: Float[np.ndarray, "s b p"]
    """Without each part of the samples; p = 0 for a figure of which these are not known."""

    def seeds_at(self, place: int) -> Float[np.ndarray, " n"]:
        """Return the values of the seeds that have a budget."""
        values = self.ratio[:, place]
        return values[np.isfinite(values)]

    def by_samples(self, place: int) -> Estimate:
        """Estimate the mean over seeds at a budget, with the jackknife's interval over samples."""
        there = np.isfinite(self.ratio[:, place])
        means = [self.ratio[there, place].mean(), *self.without[there, place].mean(axis=0)]
        return jackknife.interval(np.array(means), len(means) - 2)

    def by_seeds(self, place: int) -> Estimate:
        """Estimate it with the interval of the t test over seeds.

        A single seed has the mean variance of the other budgets, with the degrees of freedom of one of them: no more,
        for the budgets of a seed are snapshots of one training.
        """
        values = self.seeds_at(place)
        if len(values) > 1 or len(self.ratio) == 1:
            return jackknife.mean(values)
        spreads = [self.seeds_at(other) for other in range(len(self.budgets))]
        variance = np.mean([np.var(own, ddof=1) for own in spreads if len(own) > 1])
        half = float(t_quantile(CONFIDENCE, len(self.ratio) - 1) * math.sqrt(variance))
        return Estimate(float(values[0]), float(values[0]) - half, float(values[0]) + half)

    def points(self) -> list[Estimate]:
        """Estimate the mean over seeds at every budget, with the wider of the two intervals."""
        return [_wider(self.by_samples(place), self.by_seeds(place)) for place in range(len(self.budgets))]

    def joined(self, at: Float[np.ndarray, " u"]) -> list[Estimate]:
        """Estimate the curve that joins the points, and their intervals' ends, at some budgets.

        The error between two points is at most the mean of theirs, weighted as their values are.
        """
        points = self.points()
        if any(point.low is None for point in points):
            raise UserError(f"K={self.experts} {self.arm}: no interval at one of its budgets; run more seeds")
        ends = zip(*((point.value, point.low, point.high) for point in points), strict=True)
        lines = [np.interp(np.log(at), np.log(self.budgets), end) for end in ends]
        return [Estimate(*map(float, own)) for own in zip(*lines, strict=True)]

    def fitted(self, at: Float[np.ndarray, " u"]) -> list[Estimate]:
        """Estimate the mean of the seeds' lines at some budgets, with the wider of the two intervals."""
        slopes, levels = self._lines()
        return [_of_seeds(slopes * math.log2(budget) + levels) for budget in at]

    def per_doubling(self) -> Estimate:
        """Estimate the mean slope of the seeds' lines: what a doubling of the budget adds to the logarithm."""
        return _of_seeds(self._lines()[0])

    def _lines(self) -> Float[np.ndarray, "2 s 1+p"]:
        """Fit a line for each seed, with all samples and without each part of them: slopes, then levels."""
        fits = []
        for ratio, without in zip(self.ratio, self.without, strict=True):
            there = np.isfinite(ratio)
            values = np.column_stack([ratio[there], without[there]])
            fits.append(np.polyfit(np.log2(self.budgets[there]), values, 1))
        return np.stack(fits, axis=1)


def _of_seeds(values: Float[np.ndarray, "s 1+p"]) -> Estimate:
    """Estimate the mean over seeds of what all samples give, and those without each part."""
    return _wider(jackknife.interval(values.mean(axis=0), values.shape[1] - 2), jackknife.mean(values[:, 0]))


def _wider(*estimates: Estimate) -> Estimate:
    """Return the estimate of the widest interval; they have one value."""
    return max(estimates, key=lambda own: -1.0 if own.high is None else own.high - own.value)


@dataclass(frozen=True)
class Crossing:
    """Comparison of a curve with the monolith over its budgets.

    kind: 'ahead' or 'behind' at all budgets, 'crosses', or 'undecided'. shown: 'ahead' and 'behind' in the order in
    which the intervals say so. budget: where the ratio is 1 for the last time, of a curve that crosses. undecided:
    first and last budget of which the intervals say neither; None where they say it of all.
    """

    kind: str
    shown: tuple[str, ...]
    budget: float | None
    undecided: tuple[float, float] | None
    begins: str
    """'behind', 'ahead' or 'undecided' at the smallest budget."""
    ends: str

    def __str__(self) -> str:
        if self.undecided is None:
            return f"{self.kind} at all budgets"
        low, high = self.undecided
        if self.budget is not None:
            return f"{', then '.join(self.shown)}: crosses at {self.budget:,.0f} images ({low:,.0f} to {high:,.0f})"
        parts = [] if self.begins == "undecided" else [f"{self.begins} below {low:,.0f} images"]
        parts += [] if self.ends == "undecided" else [f"{self.ends} above {high:,.0f} images"]
        if self.shown and not parts:
            parts = [f"{self.shown[0]} at some budgets between"]
        said = f"{' and '.join(parts)}, else undecided" if parts else "undecided at all budgets"
        return f"no crossing shown: {said}"


def read(path: Path) -> dict[tuple[str, str], Row]:
    """Read the rows by setting and arm; of rows that stand there twice, as after a merge, the first one."""
    rows: dict[tuple[str, str], Row] = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                rows.setdefault((row["identity"], row["arm"]), row)
    return rows


def curves(rows: Iterable[Row], figure: str = FD) -> list[Curve]:
    """Pair every arm with the monolith of the same seed and budget; arms without one are left out.

    figure: column that is compared, FD or the KID of EfficientNet-Lite0, which has no parts. Raises `UserError` where
    an arm has several rows of one seed and budget, such as of several guidance scales.
    """
    placed: dict[tuple[int, str], dict[tuple[int, int], Row]] = defaultdict(dict)
    for row in rows:
        if row["sweep"] in CURVE_SWEEPS and row[figure]:
            own, place = placed[int(row["experts"]), row["arm"]], (int(row["seed"]), int(row["budget"]))
            if place in own:
                raise UserError(f"{row['arm']}, seed and budget {place}: two rows; keep those of the frozen recipe")
            own[place] = row
    reference = placed.pop((1, MONOLITH_ARM), {})
    return [
        _curve(*key, {place: (row, reference[place]) for place, row in own.items() if place in reference}, figure)
        for key, own in sorted(placed.items())
        if len({budget for _, budget in own.keys() & reference.keys()}) > 1
    ]


def _curve(experts: int, arm: str, pairs: dict[tuple[int, int], tuple[Row, Row]], figure: str) -> Curve:
    seeds, budgets = (sorted({place[part] for place in pairs}) for part in (0, 1))
    # A line needs two budgets.
    seeds = [seed for seed in seeds if sum(place[0] == seed for place in pairs) > 1]
    parts = len(next(iter(pairs.values()))[0]["fd_without"].split()) if figure == FD else 0
    ratio = np.full((len(seeds), len(budgets)), math.nan)
    without = np.full((*ratio.shape, parts), math.nan)
    for (seed, budget), (own, reference) in pairs.items():
        if seed in seeds:
            place = seeds.index(seed), budgets.index(budget)
            ratio[place] = math.log(float(own[figure]) / float(reference[figure]))
            without[place] = (np.log(fd_parts(own)) - np.log(fd_parts(reference)))[:parts]
    return Curve(experts, arm, np.array(budgets, dtype=float), ratio, without)


def fd_parts(row: Row) -> Float[np.ndarray, " p"]:
    """Return a row's FD without each tenth of the samples."""
    return np.array([float(value) for value in row["fd_without"].split()])


def places(curve: Curve) -> Float[np.ndarray, " u"]:
    """Return the budgets at which a curve is compared with 1, its smallest and largest included."""
    return np.geomspace(curve.budgets[0], curve.budgets[-1], POINTS)


def crossing(at: Float[np.ndarray, " u"], estimates: list[Estimate]) -> Crossing:
    """Compare the estimates of a curve with 1 from the smallest to the largest budget; nothing is said of others."""
    sides = [side(estimate) for estimate in estimates]
    neither = [budget for budget, own in zip(at, sides, strict=True) if own == "undecided"]
    decided = [own for own in sides if own != "undecided"]
    shown = tuple(own for number, own in enumerate(decided) if number == 0 or own != decided[number - 1])
    undecided = (float(neither[0]), float(neither[-1])) if neither else None
    if len(shown) > 1:
        values = np.array([estimate.value for estimate in estimates])
        last = int(np.flatnonzero(np.sign(values[1:]) != np.sign(values[:-1]))[-1])
        share = values[last] / (values[last] - values[last + 1])
        budget = float(at[last] * (at[last + 1] / at[last]) ** share)
        return Crossing("crosses", shown, budget, undecided or (budget, budget), sides[0], sides[-1])
    return Crossing("undecided" if neither else shown[0], shown, None, undecided, sides[0], sides[-1])


def side(estimate: Estimate) -> str:
    """Say of a logarithm of a ratio to the monolith: 'behind', 'ahead', or 'undecided' where its interval holds 0."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0 <= estimate.high:
        return "undecided"
    return "behind" if estimate.value > 0 else "ahead"
