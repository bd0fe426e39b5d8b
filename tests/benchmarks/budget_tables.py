"""Tables of the budget curve: ratios to the monolith by three rulers, crossings, and costs."""

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from hpcddm.evaluation.statistics.jackknife import IntervalEstimate
from hpcddm.runs.unit_keys import MONOLITH_ARM
from tests.benchmarks.budget_curve import (
    CURVE_SWEEPS,
    FD,
    KID,
    LITE0_KID,
    ORACLE,
    RULERS,
    Curve,
    Row,
    compare,
    curves,
    places,
    side,
)
from tests.benchmarks.tables import print_header, print_row

PER_TRAJECTORY = "per-trajectory"
FIGURES = ("fd", "kid", "lite0_kid", "precision", "recall", "agreement", "train_flops", "sample_flops")
FIGURES += ("train_core_seconds",)
Point = tuple[int, str, int]
"""K, arm, and budget."""


def table(rows: Collection[Row]) -> None:
    """Print the ratios by all rulers, then means of figures and FLOPs over seeds, processors, and the floor.

    ahead: seeds in which the arm's figure is smaller than the monolith's. ahead if below: the ratio that the intervals
    would show to be ahead, as they are no narrower.
    """
    by_ruler = {ruler: dict(_points(curves(rows, ruler))) for ruler in RULERS}
    columns = ("K", "arm", "images", "FD ratio", "95 % by samples", "95 % by seeds", "ahead", "shown", "ahead if below")
    print_header(*columns, "KID ratio", "95 % by seeds", "Lite0 KID ratio", "95 % by seeds", "ahead")
    for (experts, arm, budget), (curve, index) in by_ruler[FD].items():
        by_samples, by_seeds, widest = curve.by_samples(index), curve.by_seeds(index), curve.points()[index]
        least = "" if widest.low is None else f"{math.exp(widest.low - widest.value):.2f}"
        cells = [_ratio(by_samples), *map(_interval, (by_samples, by_seeds)), _ahead(curve, index), side(widest), least]
        for ruler in (KID, LITE0_KID):
            if (experts, arm, budget) in by_ruler[ruler]:
                other, there = by_ruler[ruler][experts, arm, budget]
                cells += [_ratio(other.by_seeds(there)), _interval(other.by_seeds(there))]
                cells += [_ahead(other, there)] if ruler == LITE0_KID else []
        print_row(experts, arm, f"{budget:,}", *cells)
    print()
    print_header("K", "arm", "images", "seeds", *FIGURES, "instructions of the seeds")
    for (experts, arm, budget), own in _by_point(rows).items():
        machines = ", ".join(row["instructions"] for row in sorted(own, key=lambda row: int(row["seed"])))
        means = [_mean([row[column] for row in own]) for column in FIGURES]
        print_row(experts, arm, f"{budget:,}", len(own), *means, machines)
    floors = [[float(row[f"floor_{name}"]) for row in rows if row["sweep"] in CURVE_SWEEPS] for name in ("fd", "kid")]
    fd, kid = map(statistics.fmean, floors)
    print(f"\nfloor, training images against held-out ones: FD {fd:.3g}, KID {kid:.2g}")


def fit(rows: Collection[Row]) -> None:
    """Print where every arm is behind the monolith or ahead, over the budgets that all seeds have.

    change: of the ratio from the first of these budgets to the last. off: the largest distance of a point from the mean
    of the seeds' lines.
    """
    print_header("ruler", "K", "arm", "change", "by points", "by lines", "off")
    for ruler, name in RULERS.items():
        for curve in (own.of_all_seeds() for own in curves(rows, ruler)):
            at, line = places(curve), [estimate.value for estimate in curve.fitted(curve.budgets)]
            off = max(abs(math.expm1(point.value - own)) for point, own in zip(curve.points(), line, strict=True))
            by_points, by_lines = (compare(at, own) for own in (curve.joined(at), curve.fitted(at)))
            print_row(name, curve.experts, curve.arm, _change(curve.change()), by_points, by_lines, f"{off:.0%}")


def rulers(rows: Collection[Row]) -> None:
    """Print how many pairs of arms FD and the other rulers order alike, and where an arm's side of 1 differs."""
    for ruler in (KID, LITE0_KID):
        for name, with_monolith in (("ways of drawing of one K", False), ("one way and the monolith", True)):
            alike: dict[int, list[bool]] = defaultdict(list)
            for budget, own in _ordered_alike(rows, ruler, with_monolith):
                alike[budget].append(own)
            counts = ", ".join(f"{budget:,}: {sum(own)} of {len(own)}" for budget, own in sorted(alike.items()))
            total = [own for several in alike.values() for own in several]
            print(f"{name}, FD and {RULERS[ruler]} order {sum(total)} of {len(total)} pairs alike ({counts})")
    by_lite0 = dict(_points(curves(rows, LITE0_KID)))
    for point, (curve, index) in _points(curves(rows)):
        if point in by_lite0:
            other, there = by_lite0[point]
            first, second = curve.seeds_at(index).mean(), other.seeds_at(there).mean()
            if first * second < 0:
                name = "K={} {}, {:,} images".format(*point)
                print(f"{name}: FD ratio {math.exp(first):.3f}, Lite0 KID ratio {math.exp(second):.3f}")


def ways(rows: Collection[Row]) -> None:
    """Print the ratios of one expert per trajectory to the other ways of drawing of its K, by all rulers.

    A ruler that has no row of a point leaves its cells empty.
    """
    print_header("K", "images", "against", *(part for name in RULERS.values() for part in (name, "95 %", "ahead")))
    for other in ("top-1", "top-2"):
        by_ruler = [dict(_points(curves(rows, ruler, against=other))) for ruler in RULERS]
        for (experts, arm, budget), _ in by_ruler[0].items():
            if arm == PER_TRAJECTORY:
                cells = [_cells(*points.get((experts, arm, budget), (None, 0))) for points in by_ruler]
                print_row(experts, f"{budget:,}", other, *(cell for own in cells for cell in own))


def _cells(curve: Curve | None, index: int) -> list[str]:
    if curve is None:
        return [""] * 3
    point = curve.points()[index]
    return [_ratio(point), _interval(point), _ahead(curve, index)]


def _points(own: Iterable[Curve]) -> Iterator[tuple[Point, tuple[Curve, int]]]:
    for curve in own:
        for index, budget in enumerate(curve.budgets):
            yield (curve.experts, curve.arm, int(budget)), (curve, index)


def _by_point(rows: Iterable[Row]) -> dict[Point, list[Row]]:
    groups: dict[Point, list[Row]] = defaultdict(list)
    for row in rows:
        if row["sweep"] in CURVE_SWEEPS:
            groups[int(row["experts"]), row["arm"], int(row["budget"])].append(row)
    return dict(sorted(groups.items()))


def _ordered_alike(rows: Iterable[Row], ruler: str, with_monolith: bool) -> Iterator[tuple[int, bool]]:
    """Yield for every pair of arms of one seed and budget the budget, and if FD and the other ruler order it alike."""
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["sweep"] in CURVE_SWEEPS and row[ruler] and row["arm"] != ORACLE:
            groups[row["seed"], int(row["budget"])].append(row)
    for (_, budget), own in groups.items():
        for first, second in combinations(own, 2):
            is_with_monolith = MONOLITH_ARM in (first["arm"], second["arm"])
            if is_with_monolith == with_monolith and (with_monolith or first["experts"] == second["experts"]):
                by_fd, by_other = (float(first[name]) - float(second[name]) for name in (FD, ruler))
                yield budget, by_fd * by_other > 0


def _ratio(estimate: IntervalEstimate) -> str:
    return f"{math.exp(estimate.value):.3f}"


def _interval(estimate: IntervalEstimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{math.exp(estimate.low):.2f} to {math.exp(estimate.high):.2f}"


def _change(estimate: IntervalEstimate) -> str:
    ends = [f"{math.expm1(end):+.0%}" for end in (estimate.low, estimate.high) if end is not None]
    return f"{math.expm1(estimate.value):+.0%}" + (f" ({' to '.join(ends)})" if ends else "")


def _ahead(curve: Curve, index: int) -> str:
    values = curve.seeds_at(index)
    return f"{np.count_nonzero(values < 0)} of {len(values)}"


def _mean(values: Sequence[str]) -> str:
    return f"{statistics.fmean(map(float, values)):.4g}" if all(values) else ""
