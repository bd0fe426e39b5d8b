"""Analysis of the budget curve's rows: FD as a ratio to the monolith's by budget, its intervals, and where it is 1.

The logarithm of the ratio is a line over the logarithm of the budget, fitted for each seed; the curve is their mean.
Its 95 % interval at a budget is the wider of two: of the jackknife that leaves out a tenth of the samples and of the
held-out images at the same places, in all arms and seeds at once, and of the t test over seeds. An arm crosses the
monolith where the intervals say that it is behind at some budget and ahead at another; the crossing's interval holds
the budgets of which they say neither.
"""

import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, NullLocator

from hpcddm.errors import UserError
from hpcddm.pipeline.evaluate import MONOLITH_ARM
from hpcddm.sweep.plot import COLOURS, MARKERS
from hpcddm.uncertainty import jackknife
from hpcddm.uncertainty.jackknife import Estimate

Row = dict[str, str]
CURVE_SWEEPS = ("budget", "budget_longer")
POINTS = 241
"""Budgets at which the fitted curve is compared with 1."""
NO_DATE = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""What makes the same rows the same file."""


@dataclass(frozen=True)
class Curve:
    """One arm of one K against the monolith: logarithms of FD's ratio, NaN where a seed has no such budget."""

    experts: int
    arm: str
    budgets: Float[np.ndarray, " b"]
    ratio: Float[np.ndarray, "s b"]
    without: Float[np.ndarray, "s b p"]
    """Without each part of the samples."""

    def at_point(self, place: int) -> tuple[Estimate, float | None]:
        """Estimate the ratio's logarithm at a budget by the jackknife; beside it the deviation over seeds."""
        there = np.isfinite(self.ratio[:, place])
        means = [self.ratio[there, place].mean(), *self.without[there, place].mean(axis=0)]
        spread = statistics.stdev(self.ratio[there, place]) if there.sum() > 1 else None
        return jackknife.interval(np.array(means), len(means) - 2), spread

    def fitted(self, at: Float[np.ndarray, " u"]) -> list[Estimate]:
        """Estimate the fitted curve at some budgets, with the wider of the two intervals."""
        lines = np.array([self._line(seed, at) for seed in range(len(self.ratio))])
        estimates = []
        for own in np.moveaxis(lines, -1, 0):
            sampled, seeds = jackknife.interval(own.mean(axis=0), own.shape[1] - 2), jackknife.mean(own[:, 0])
            halves = [one.high - one.value for one in (sampled, seeds) if one.high is not None]
            half = max(halves)
            estimates.append(Estimate(sampled.value, sampled.value - half, sampled.value + half))
        return estimates

    def _line(self, seed: int, at: Float[np.ndarray, " u"]) -> Float[np.ndarray, "1+p u"]:
        """Fit a seed's line, with all samples and without each part of them."""
        there = np.isfinite(self.ratio[seed])
        values = np.column_stack([self.ratio[seed, there], self.without[seed, there]])
        slope, level = np.polyfit(np.log2(self.budgets[there]), values, 1)
        return np.outer(slope, np.log2(at)) + level[:, None]


@dataclass(frozen=True)
class Crossing:
    """Comparison of a curve with the monolith over its budgets.

    kind: 'ahead' or 'behind' at all budgets, 'crosses', or 'undecided'. budget: where the fitted ratio is 1, of a curve
    that crosses. undecided: first and last budget of which the intervals say neither; None where they say it of all.
    """

    kind: str
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
            return f"{self.begins}, then {self.ends}: crosses at {self.budget:,.0f} images ({low:,.0f} to {high:,.0f})"
        parts = [] if self.begins == "undecided" else [f"{self.begins} below {low:,.0f} images"]
        parts += [] if self.ends == "undecided" else [f"{self.ends} above {high:,.0f} images"]
        return f"no crossing shown: {' and '.join(parts) or 'neither ahead nor behind'}, else undecided"


def read(path: Path) -> dict[tuple[str, str], Row]:
    """Read the rows by setting and arm; of rows that stand there twice, as after a merge, the first one."""
    rows: dict[tuple[str, str], Row] = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                rows.setdefault((row["identity"], row["arm"]), row)
    return rows


def curves(rows: Iterable[Row]) -> list[Curve]:
    """Pair every arm with the monolith of the same seed and budget; arms without one are left out.

    Raises `UserError` where an arm has several rows of one seed and budget, such as of several guidance scales.
    """
    placed: dict[tuple[int, str], dict[tuple[int, int], Row]] = defaultdict(dict)
    for row in rows:
        if row["sweep"] in CURVE_SWEEPS:
            own, place = placed[int(row["experts"]), row["arm"]], (int(row["seed"]), int(row["budget"]))
            if place in own:
                raise UserError(f"{row['arm']}, seed and budget {place}: two rows; keep those of the frozen recipe")
            own[place] = row
    reference = placed.pop((1, MONOLITH_ARM), {})
    return [
        _curve(*key, {place: (row, reference[place]) for place, row in own.items() if place in reference})
        for key, own in sorted(placed.items())
        if len({budget for _, budget in own.keys() & reference.keys()}) > 1
    ]


def _curve(experts: int, arm: str, pairs: dict[tuple[int, int], tuple[Row, Row]]) -> Curve:
    seeds, budgets = (sorted({place[part] for place in pairs}) for part in (0, 1))
    # A line needs two budgets.
    seeds = [seed for seed in seeds if sum(place[0] == seed for place in pairs) > 1]
    parts = len(next(iter(pairs.values()))[0]["fd_without"].split())
    ratio = np.full((len(seeds), len(budgets)), math.nan)
    without = np.full((*ratio.shape, parts), math.nan)
    for (seed, budget), (own, reference) in pairs.items():
        if seed in seeds:
            place = seeds.index(seed), budgets.index(budget)
            ratio[place] = math.log(float(own["fd"]) / float(reference["fd"]))
            without[place] = np.log(fd_parts(own)) - np.log(fd_parts(reference))
    return Curve(experts, arm, np.array(budgets, dtype=float), ratio, without)


def fd_parts(row: Row) -> Float[np.ndarray, " p"]:
    """Return a row's FD without each tenth of the samples."""
    return np.array([float(value) for value in row["fd_without"].split()])


def crossing(curve: Curve) -> Crossing:
    """Compare the fitted curve with 1 from the smallest to the largest budget; nothing is said of others."""
    at = np.geomspace(curve.budgets[0], curve.budgets[-1], POINTS)
    estimates = curve.fitted(at)
    sides = [_side(estimate) for estimate in estimates]
    neither = [budget for budget, side in zip(at, sides, strict=True) if side == "undecided"]
    kinds = {side for side in sides if side != "undecided"}
    undecided = (float(neither[0]), float(neither[-1])) if neither else None
    if len(kinds) == 2:
        values = [estimate.value for estimate in estimates]
        order = np.argsort(values)
        budget = float(np.exp(np.interp(0.0, np.array(values)[order], np.log(at)[order])))
        return Crossing("crosses", budget, undecided or (budget, budget), sides[0], sides[-1])
    return Crossing("undecided" if neither else kinds.pop(), None, undecided, sides[0], sides[-1])


def _side(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None or estimate.low <= 0 <= estimate.high:
        return "undecided"
    return "behind" if estimate.value > 0 else "ahead"


def fit(rows: Iterable[Row]) -> None:
    """Print every arm's crossing, and how far its points are from its line."""
    for curve in curves(rows):
        points = [curve.at_point(place)[0].value for place in range(len(curve.budgets))]
        line = [estimate.value for estimate in curve.fitted(curve.budgets)]
        off = max(abs(math.expm1(point - fitted)) for point, fitted in zip(points, line, strict=True))
        print(
            f"K={curve.experts} {curve.arm}: {crossing(curve)}; {len(curve.ratio)} seeds,"
            f" points are at most {off:.1%} off the line"
        )


def table(rows: Collection[Row]) -> None:
    """Print FD's ratios with the jackknife's intervals and the deviation over seeds, costs, and the second ruler."""
    print("| K | arm | images | FD / monolith's | 95 % over samples | sd over seeds |")
    print(f"| --- {'| --- ' * 5}|")
    for curve in curves(rows):
        for place, budget in enumerate(curve.budgets):
            estimate, spread = curve.at_point(place)
            low, high = (math.nan if end is None else math.exp(end) for end in (estimate.low, estimate.high))
            deviation = "" if spread is None else f"{spread:.3f}"
            ratio = f"{math.exp(estimate.value):.3f} | {low:.3f} to {high:.3f} | {deviation}"
            print(f"| {curve.experts} | {curve.arm} | {budget:,.0f} | {ratio} |")
    columns = ("fd", "kid", "lite0_kid", "precision", "recall", "agreement", "train_flops", "sample_flops")
    columns += ("train_core_seconds",)
    print(f"\n| K | arm | images | seeds | {' | '.join(columns)} |\n| --- {'| --- ' * (3 + len(columns))}|")
    groups: dict[tuple[int, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["sweep"] in CURVE_SWEEPS:
            groups[int(row["experts"]), row["arm"], int(row["budget"])].append(row)
    for (experts, arm, budget), own in sorted(groups.items()):
        means = [_mean([row[column] for row in own]) for column in columns]
        print(f"| {experts} | {arm} | {budget:,} | {len(own)} | {' | '.join(means)} |")
    alike, pairs = second_ruler(rows)
    print(f"\nLite0's KID orders {alike} of {pairs} pairs of arms of one seed, K and budget as FD does.")


def _mean(values: Sequence[str]) -> str:
    return f"{statistics.fmean(map(float, values)):.4g}" if all(values) else ""


def second_ruler(rows: Iterable[Row]) -> tuple[int, int]:
    """Count the pairs of arms that FD and the KID of EfficientNet-Lite0 order alike, and all pairs."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["sweep"] in CURVE_SWEEPS and row["lite0_kid"]:
            groups[row["seed"], row["budget"]].append(row)
    alike = pairs = 0
    for own in groups.values():
        for one, other in combinations(own, 2):
            # Arms of one K, and the monolith with each.
            if one["experts"] == other["experts"] or MONOLITH_ARM in (one["arm"], other["arm"]):
                by_fd, by_kid = (float(one[name]) - float(other[name]) for name in ("fd", "lite0_kid"))
                alike, pairs = alike + (by_fd * by_kid > 0), pairs + 1
    return alike, pairs


def draw(all_curves: Sequence[Curve], file: Path) -> None:
    """Draw FD's ratio against the budget, a panel for each K; raises `UserError` without a curve."""
    if not all_curves:
        raise UserError("no arm has rows at two budgets beside the monolith's; run more atoms")
    kinds = sorted({curve.experts for curve in all_curves})
    look = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    with style.context(["default", look | {"svg.hashsalt": "budget", "pdf.fonttype": 42}]):
        figure = Figure(figsize=(3.3 * len(kinds), 2.9), layout="constrained")
        panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        arms = list(dict.fromkeys(curve.arm for curve in all_curves))
        for experts, axes in zip(kinds, panels, strict=True):
            for curve in all_curves:
                if curve.experts == experts:
                    _draw_curve(axes, curve, arms.index(curve.arm))
            axes.axhline(1, color="0.45", linestyle=(0, (4, 2)), linewidth=1)
            axes.set(xscale="log", yscale="log", title=f"K = {experts}", xlabel="images, of all experts together")
            budgets = sorted({budget for curve in all_curves for budget in curve.budgets})
            axes.xaxis.set_major_locator(FixedLocator(budgets))
            axes.xaxis.set_major_formatter(EngFormatter(places=0, sep=""))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:.3g}")
        panels[0].set_ylabel("FD / FD of the monolith")
        lines = {line.get_label(): line for axes in panels for line in axes.get_lines() if line.get_label() in arms}
        figure.legend(lines.values(), lines, loc="outside lower center", ncols=len(arms))
        figure.savefig(file, dpi=200, metadata=NO_DATE.get(file.suffix))


def _draw_curve(axes: Axes, curve: Curve, number: int) -> None:
    """Draw points with the jackknife's intervals, seeds as dots, the fitted line, and a crossing with its interval."""
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    points = [curve.at_point(place)[0] for place in range(len(curve.budgets))]
    values = np.exp([point.value for point in points])
    ends = np.exp([(point.low or point.value, point.high or point.value) for point in points]).T
    axes.errorbar(curve.budgets, values, np.abs(ends - values), fmt="none", ecolor=colour, elinewidth=1, capsize=2)
    axes.plot(curve.budgets, values, color=colour, marker=marker, markersize=4, linewidth=0, label=curve.arm)
    for seed in curve.ratio if len(curve.ratio) > 1 else []:
        axes.plot(curve.budgets, np.exp(seed), color=colour, marker=".", markersize=2, linewidth=0, alpha=0.6)
    at = np.geomspace(curve.budgets[0], curve.budgets[-1], POINTS)
    axes.plot(at, np.exp([estimate.value for estimate in curve.fitted(at)]), color=colour, linewidth=1)
    place = crossing(curve)
    if place.budget is not None and place.undecided is not None:
        axes.plot(place.undecided, (1, 1), color=colour, linewidth=3, alpha=0.5, solid_capstyle="butt")
        axes.plot(place.budget, 1, color=colour, marker="|", markersize=9)
