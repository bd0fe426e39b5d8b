"""Figure of the budget curve: ratios to the monolith against the budget, a column for each K, a row for each ruler."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, NullLocator

from hpcddm.errors import UserError
from hpcddm.sweep.plot import COLOURS, MARKERS
from tests.benchmarks.budget_curve import FD, RULERS, Curve, Row, crossing, curves, places

NO_DATE = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""What makes the same rows the same file."""
APART = 1.05
"""Factor of the budget between neighbouring arms, so that their intervals are seen side by side."""
LOOK = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def draw(rows: Collection[Row], file: Path) -> None:
    """Draw the ratios by both rulers, the second one where the rows have it; raises `UserError` without a curve."""
    shown = {ruler: own for ruler in RULERS if (own := curves(rows, ruler))}
    if FD not in shown:
        raise UserError("no arm has rows at two budgets beside the monolith's; run more atoms")
    kinds = sorted({curve.experts for curve in shown[FD]})
    arms = list(dict.fromkeys(curve.arm for curve in shown[FD]))
    with style.context(["default", LOOK | {"svg.hashsalt": "budget", "pdf.fonttype": 42}]):
        figure = Figure(figsize=(3.4 * len(kinds), 0.5 + 2.3 * len(shown)), layout="constrained")
        panels = figure.subplots(len(shown), len(kinds), sharex=True, sharey="row", squeeze=False)
        for (ruler, own), row in zip(shown.items(), panels, strict=True):
            for experts, axes in zip(kinds, row, strict=True):
                for number, arm in enumerate(arms):
                    for curve in (curve for curve in own if (curve.experts, curve.arm) == (experts, arm)):
                        _draw_curve(axes, curve, number, APART ** (number - (len(arms) - 1) / 2))
                _dress(axes, sorted({budget for curve in own for budget in curve.budgets}))
            row[0].set_ylabel(f"{RULERS[ruler]} / monolith's")
        for experts, axes in zip(kinds, panels[0], strict=True):
            axes.set_title(f"K = {experts}")
        for axes in panels[-1]:
            axes.set_xlabel("images, of all experts together")
        lines = {
            line.get_label(): line for axes in panels.flat for line in axes.get_lines() if line.get_label() in arms
        }
        figure.legend(lines.values(), lines, loc="outside lower center", ncols=len(arms))
        figure.savefig(file, dpi=200, metadata=NO_DATE.get(file.suffix))


def _dress(axes: Axes, budgets: list[float]) -> None:
    axes.axhline(1, color="0.45", linestyle=(0, (4, 2)), linewidth=1)
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_locator(FixedLocator(budgets))
    axes.xaxis.set_major_formatter(EngFormatter(places=0, sep=""))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(0.5, 0.7, 1, 1.5, 2, 3, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_curve(axes: Axes, curve: Curve, number: int, apart: float) -> None:
    """Draw points that are joined, the wider of their intervals, seeds as dots, and a crossing with its interval."""
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    points, at = curve.points(), curve.budgets * apart
    values = np.exp([point.value for point in points])
    ends = np.exp([[getattr(point, end) or point.value for point in points] for end in ("low", "high")])
    axes.errorbar(at, values, np.abs(ends - values), fmt="none", ecolor=colour, elinewidth=0.8, capsize=2, alpha=0.7)
    axes.plot(at, values, color=colour, marker=marker, markersize=4, linewidth=1, label=curve.arm)
    for seed in curve.ratio if len(curve.ratio) > 1 else []:
        axes.plot(at, np.exp(seed), color=colour, marker=".", markersize=2.5, linewidth=0, alpha=0.6)
    if all(point.low is not None for point in points):
        place = crossing(places(curve), curve.joined(places(curve)))
        if place.budget is not None and place.undecided is not None:
            axes.plot(place.undecided, (1, 1), color=colour, linewidth=3, alpha=0.5, solid_capstyle="butt")
            axes.plot(place.budget, 1, color=colour, marker="|", markersize=9)
