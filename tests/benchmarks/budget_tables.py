"""Tables of the budget curve: ratios to the monolith by two rulers, crossings, costs, and the hours that they took."""

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from hpcddm.pipeline.evaluate import MONOLITH_ARM
from hpcddm.uncertainty.jackknife import Estimate
from tests.benchmarks.budget_curve import (
    CURVE_SWEEPS,
    FD,
    LITE0_KID,
    RULERS,
    Curve,
    Row,
    crossing,
    curves,
    places,
    side,
)

COSTS = ("fd", "kid", "lite0_kid", "precision", "recall", "agreement", "train_flops", "sample_flops")
COSTS += ("train_core_seconds",)
Point = tuple[int, str, int]
"""K, arm, and budget."""


def fit(rows: Collection[Row]) -> None:
    """Print where every arm crosses the monolith, by the seeds' lines and by the points, and what a doubling changes.

    off: the largest distance of a point from the mean of the lines.
    """
    _print_row("figure", "K", "arm", "a doubling changes it by", "by lines", "off", "by points")
    _print_row(*["---"] * 7)
    for ruler, name in RULERS.items():
        for curve in curves(rows, ruler):
            at, slope = places(curve), curve.per_doubling()
            line = [estimate.value for estimate in curve.fitted(curve.budgets)]
            off = max(abs(math.expm1(point.value - own)) for point, own in zip(curve.points(), line, strict=True))
            crossings = (str(crossing(at, estimates)) for estimates in (curve.fitted(at), curve.joined(at)))
            by_lines, by_points = crossings
            _print_row(name, curve.experts, curve.arm, _change(slope), by_lines, f"{off:.0%}", by_points)


def table(rows: Collection[Row]) -> None:
    """Print the ratios by FD and by the second ruler, then means of all figures and costs over seeds, and the floor.

    seeds ahead: seeds in which the arm's figure is smaller than the monolith's. Figures are those of `COSTS`.
    """
    second = dict(_points(curves(rows, LITE0_KID)))
    columns = ("K", "arm", "images", "FD / monolith's", "95 % over samples", "95 % over seeds", "seeds ahead", "shown")
    _print_row(*columns, "Lite0 KID / monolith's", "95 % over seeds", "seeds ahead", "shown")
    _print_row(*["---"] * (len(columns) + 4))
    for (experts, arm, budget), (curve, place) in _points(curves(rows)):
        estimates = curve.by_samples(place), curve.by_seeds(place)
        cells = [_ratio(estimates[0]), *map(_interval, estimates), _ahead(curve, place), side(curve.points()[place])]
        if (experts, arm, budget) in second:
            other, there = second[experts, arm, budget]
            estimate = other.points()[there]
            cells += [_ratio(estimate), _interval(estimate), _ahead(other, there), side(estimate)]
        _print_row(experts, arm, f"{budget:,}", *cells)
    print()
    _print_row("K", "arm", "images", "seeds", *COSTS)
    _print_row(*["---"] * (len(COSTS) + 4))
    groups: dict[Point, list[Row]] = defaultdict(list)
    for row in rows:
        if row["sweep"] in CURVE_SWEEPS:
            groups[int(row["experts"]), row["arm"], int(row["budget"])].append(row)
    for (experts, arm, budget), own in sorted(groups.items()):
        _print_row(experts, arm, f"{budget:,}", len(own), *(_mean([row[column] for row in own]) for column in COSTS))
    floors = [[float(row[f"floor_{name}"]) for own in groups.values() for row in own] for name in ("fd", "kid")]
    fd, kid = map(statistics.fmean, floors)
    print(f"\nfloor, training images against held-out ones: FD {fd:.3g}, KID {kid:.2g}")


def rulers(rows: Collection[Row]) -> None:
    """Print of how many pairs of arms FD and the KID of EfficientNet-Lite0 agree, and of which sides they do not."""
    for name, with_monolith in (("one K", False), ("an arm and the monolith", True)):
        alike: dict[int, list[bool]] = defaultdict(list)
        for budget, own in _ordered_alike(rows, with_monolith):
            alike[budget].append(own)
        whole = [own for several in alike.values() for own in several]
        texts = [f"{budget:,}: {sum(own)} of {len(own)}" for budget, own in sorted(alike.items())]
        print(f"pairs of {name} that both rulers order alike: {sum(whole)} of {len(whole)} ({', '.join(texts)})")
    second = dict(_points(curves(rows, LITE0_KID)))
    for point, (curve, place) in _points(curves(rows)):
        if point in second:
            other, there = second[point]
            first, last = curve.points()[place], other.points()[there]
            if first.value * last.value < 0:
                experts, arm, budget = point
                print(f"K={experts} {arm}, {budget:,} images: FD {_ratio(first)}, Lite0's KID {_ratio(last)}")


def hours(rows: Iterable[Row]) -> None:
    """Print the hours of two cores that trainings and samples took by their rows, a sweep each.

    Trainings that were made again where other code drew from them count again; waits and stages of data do not count.
    """
    trained: dict[tuple[str, ...], float] = defaultdict(float)
    drawn: dict[tuple[str, str], float] = {}
    for row in rows:
        training = tuple(row[name] for name in ("sweep", "seed", "experts", "learning_rate", "batch", "commit"))
        trained[training] = max(trained[training], float(row["train_core_seconds"] or 0))
        drawn[row["sweep"], row["identity"]] = float(row["sample_core_seconds"])
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for part, seconds in enumerate((trained, drawn)):
        for (sweep, *_), own in seconds.items():
            sums[sweep][part] += own / 7200
    for sweep, (training, drawing) in sorted(sums.items()):
        print(f"{sweep}: {training:.1f} h of trainings, {drawing:.1f} h of samples")
    print(f"all: {sum(map(sum, sums.values())):.1f} h of two cores")


def _points(own: Iterable[Curve]) -> Iterator[tuple[Point, tuple[Curve, int]]]:
    for curve in own:
        for place, budget in enumerate(curve.budgets):
            yield (curve.experts, curve.arm, int(budget)), (curve, place)


def _ordered_alike(rows: Iterable[Row], with_monolith: bool) -> Iterator[tuple[int, bool]]:
    """Yield for every pair of arms of one seed and budget the budget, and if FD and Lite0's KID order it alike."""
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["sweep"] in CURVE_SWEEPS and row[LITE0_KID]:
            groups[row["seed"], int(row["budget"])].append(row)
    for (_, budget), own in groups.items():
        for one, other in combinations(own, 2):
            is_with_monolith = MONOLITH_ARM in (one["arm"], other["arm"])
            if is_with_monolith == with_monolith and (with_monolith or one["experts"] == other["experts"]):
                by_fd, by_kid = (float(one[name]) - float(other[name]) for name in (FD, LITE0_KID))
                yield budget, by_fd * by_kid > 0


def _print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |")


def _ratio(estimate: Estimate) -> str:
    return f"{math.exp(estimate.value):.3f}"


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{math.exp(estimate.low):.3f} to {math.exp(estimate.high):.3f}"


def _change(estimate: Estimate) -> str:
    ends = [end for end in (estimate.low, estimate.high) if end is not None]
    interval = " to ".join(f"{math.expm1(end):+.0%}" for end in ends)
    return f"{math.expm1(estimate.value):+.0%}{interval and f' ({interval})'}"


def _ahead(curve: Curve, place: int) -> str:
    values = curve.seeds_at(place)
    return f"{np.count_nonzero(values < 0)} of {len(values)}"


def _mean(values: Sequence[str]) -> str:
    return f"{statistics.fmean(map(float, values)):.4g}" if all(values) else ""
