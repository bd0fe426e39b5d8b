"""Figure of the budget curve: ratios to the monolith against the budget, a column for each K, a row for each ruler."""

from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, NullLocator

from hpcddm.errors import UserError
from hpcddm.evaluation.sweep_results.plot import COLOURS, MARKERS
from tests.benchmarks.budget_curve import FD, LITE0_KID, ORACLE, RULERS, Curve, Row, compare, curves, places

NO_DATE = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""What makes the same rows the same file."""
APART = 1.07
"""Factor of the budget between neighbouring arms, so that their intervals are seen side by side."""
MARGIN = 1.35
"""Factor of the ratios' range that is shown beyond the seeds; longer intervals end at the frame."""
LOOK = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def draw(rows: Collection[Row], file: Path) -> None:
    """Draw the ratios of FD and, where the rows have it, of Lite0's KID; raises `UserError` without a curve."""
    shown = {ruler: own for ruler in (FD, LITE0_KID) if (own := curves(rows, ruler))}
    if FD not in shown:
        raise UserError("no arm has rows at two budgets beside the monolith's; run more of the sweeps")
    kinds = sorted({curve.experts for curve in shown[FD]})
    # The oracle last, behind the ways of drawing.
    arms = sorted({curve.arm for curve in shown[FD]}, key=lambda arm: (arm == ORACLE, arm))
    with style.context(["default", LOOK | {"svg.hashsalt": "budget", "pdf.fonttype": 42}]):
        figure = Figure(figsize=(3.5 * len(kinds), 0.5 + 2.3 * len(shown)), layout="constrained")
        panels = figure.subplots(len(shown), len(kinds), sharex=True, sharey="row", squeeze=False)
        for (ruler, own), row in zip(shown.items(), panels, strict=True):
            for experts, axes in zip(kinds, row, strict=True):
                for curve in (curve for curve in own if curve.experts == experts):
                    _draw_curve(axes, curve, arms.index(curve.arm), len(arms))
                _dress(axes, own)
            row[0].set_ylabel(f"{RULERS[ruler]} / monolith's")
        for experts, axes in zip(kinds, panels[0], strict=True):
            axes.set_title(f"K = {experts}")
        for axes in panels[-1]:
            axes.set_xlabel("images, of all experts together")
        lines = [line for axes in panels.flat for line in axes.get_lines() if line.get_label() in arms]
        legend = {line.get_label(): line for line in sorted(lines, key=lambda line: arms.index(line.get_label()))}
        figure.legend(legend.values(), legend, loc="outside lower center", ncols=len(arms))
        figure.savefig(file, dpi=200, metadata=NO_DATE.get(file.suffix))


def _dress(axes: Axes, shown: Iterable[Curve]) -> None:
    budgets = sorted({budget for curve in shown for budget in curve.budgets})
    ratios = np.exp(np.concatenate([curve.log_ratio[np.isfinite(curve.log_ratio)] for curve in shown]))
    axes.axhline(1, color="0.45", linestyle=(0, (4, 2)), linewidth=1)
    axes.set(xscale="log", yscale="log", ylim=(min(ratios.min(), 1) / MARGIN, max(ratios.max(), 1) * MARGIN))
    axes.xaxis.set_major_locator(FixedLocator(budgets))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{budget:,.0f}" for budget in budgets]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(0.5, 0.7, 1, 1.5, 2, 3, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_curve(axes: Axes, curve: Curve, number: int, arms: int) -> None:
    """Draw points that are joined, the wider of their intervals, seeds as dashes, and a crossing with its interval.

    Budgets that some seed lacks are hollow and joined by a dotted line.
    """
    is_oracle = curve.arm == ORACLE
    look = {"color": "0.6" if is_oracle else COLOURS[number % len(COLOURS)], "zorder": 2 if is_oracle else 3}
    points, at = curve.points(), curve.budgets * APART ** (number - (arms - 1) / 2)
    values = np.exp([point.value for point in points])
    ends = np.exp([[point.value if end is None else end for end in (point.low, point.high)] for point in points]).T
    axes.errorbar(at, values, np.abs(ends - values), fmt="none", elinewidth=0.8, alpha=0.6, **look)
    for seed in curve.log_ratio if len(curve.log_ratio) > 1 else []:
        axes.plot(at, np.exp(seed), marker="_", markersize=4, linewidth=0, **look)
    shared = np.isin(curve.budgets, curve.of_all_seeds().budgets)
    marker = {"marker": MARKERS[number % len(MARKERS)], "markersize": 4}
    axes.plot(at, values, linewidth=0.8, linestyle=":", **marker, markerfacecolor="white", **look)
    axes.plot(at[shared], values[shared], linewidth=1.2, **marker, label=curve.arm, **look)
    compared = curve.of_all_seeds()
    comparison = compare(places(compared), compared.joined(places(compared)))
    if comparison.crossing is not None:
        axes.plot(comparison.between, (1, 1), linewidth=3, alpha=0.5, solid_capstyle="butt", **look)
        axes.plot(comparison.crossing, 1, marker="|", markersize=9, **look)
