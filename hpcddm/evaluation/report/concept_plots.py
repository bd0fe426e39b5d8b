"""Plots about concepts: how well they are drawn by their frequency."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullLocator

from hpcddm.evaluation.concepts.summary_text import interval_text
from hpcddm.evaluation.report.plots import DASHES, SOFT, TEXT, as_svg, new_figure, page_style, round_values

ZERO_DISTANCE = 0.35
"""Decades between the axis and the column of concepts that never occur, and from there to the least frequency."""
ARM_STYLES = (
    {"color": TEXT, "marker": "o", "linestyle": "solid"},
    {"color": SOFT, "marker": "D", "linestyle": DASHES[1]},
)
"""Of the ensemble, and of the monolith."""
Point = tuple[float, float]


@dataclass(frozen=True)
class ArmCurve:
    """An arm on the plot. curve: a `FrequencyCurve` as JSON holds it; points: frequency and score of every concept."""

    arm: str
    curve: Mapping[str, Any]
    points: Sequence[Point]


def quality(name: str, arms: Sequence[ArmCurve], label: str) -> str:
    """Plot relative score against frequency: concepts faint, means of half decades, lines with their bands.

    Concepts that never occur have a column of their own at the left. label: of the axis of frequency.
    """
    with page_style(name):
        figure, axes = new_figure(3.5)
        frequencies = [frequency for arm in arms for frequency, _ in arm.points if frequency > 0]
        low, high = (min(frequencies), max(frequencies)) if frequencies else (1.0, 1.0)
        zero = 10 ** (math.log10(low) - 2 * ZERO_DISTANCE) if any(arm.curve["zeros"] for arm in arms) else None
        axes.axhline(1, color=SOFT, linestyle=DASHES[2], linewidth=1)
        axes.axhline(0, color=SOFT, linestyle=DASHES[2], linewidth=1)
        for number, arm in enumerate(arms):
            _draw(axes, arm, ARM_STYLES[number], zero, side=number - (len(arms) - 1) / 2)
        _frequency_axis(axes, low, high, zero)
        # The interval of a bin of two concepts may be many times as wide as all of them.
        heights = [0.0, 1.0, *(score for arm in arms for _, score in arm.points)]
        margin = 0.06 * (max(heights) - min(heights))
        axes.set(xlabel=label, ylabel="relative score", ylim=(min(heights) - margin, max(heights) + margin))
        axes.annotate("real images", (0.99, 1), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=SOFT)
        figure.legend(loc="outside lower center", ncols=len(arms))
        return as_svg(figure, name, f"Relative score against {label}. {' '.join(map(_describe_arm, arms))}")


def _draw(axes: Axes, arm: ArmCurve, look: dict[str, Any], zero: float | None, side: float) -> None:
    """Draw one arm; side: offset that separates the marks of several arms."""
    colour, marker = look["color"], look["marker"]
    if arm.points:
        places = [(frequency or zero, score) for frequency, score in arm.points]
        axes.plot(*zip(*places, strict=True), marker, color=colour, alpha=0.22, markersize=3, markeredgewidth=0)
    fit = arm.curve["fit"]
    if fit:
        line = np.array([(at["frequency"], _number(at["score"]["value"])) for at in fit["line"]])
        band = np.array([(_number(at["score"]["low"]), _number(at["score"]["high"])) for at in fit["line"]])
        axes.fill_between(line[:, 0], *band.T, color=colour, alpha=0.16, linewidth=0)
        axes.plot(*line.T, color=colour, linestyle=look["linestyle"])
    scored = [entry for entry in arm.curve["bins"] if entry["score"]]
    means = [(entry["frequency"] * 10 ** (0.04 * side), entry["score"]) for entry in scored]
    if arm.curve["zeros"]:
        means.append(((zero or 1) * 10 ** (0.08 * side), arm.curve["zeros"]["score"]))
    for place, score in means:
        if score["low"] is not None:
            axes.plot([place, place], [score["low"], score["high"]], color=colour, linewidth=1)
    values = [score["value"] for _, score in means]
    axes.plot([place for place, _ in means], values, color=colour, marker=marker, markersize=5, linewidth=0)
    # The legend shows line and mark, which are drawn apart.
    axes.plot([], [], color=colour, marker=marker, markersize=5, linestyle=look["linestyle"], label=arm.arm)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _frequency_axis(axes: Axes, low: float, high: float, zero: float | None) -> None:
    """Set a logarithmic axis of counts, with 0 at `zero`, apart from the others by a line."""
    axes.set_xscale("log")
    ticks = [*([zero] if zero else []), *round_values(low, high)]
    number = EngFormatter(sep="")
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value == zero else number(value)))
    margin = 10 ** max(0.06, 0.03 * math.log10(high / low))
    begin = 10 ** (math.log10(zero) - ZERO_DISTANCE) if zero else low / margin
    axes.set_xlim(begin, high * margin)
    if zero:
        axes.axvline(10 ** (math.log10(zero) + ZERO_DISTANCE), color=SOFT, linewidth=0.6)


def _describe_arm(arm: ArmCurve) -> str:
    """Describe the plot of an arm in words."""
    curve, parts = arm.curve, []
    fit = curve["fit"]
    parts.append(f"slope per decade {interval_text(fit['slope'])}" if fit else str(curve["no_fit"]))
    parts += [
        f"{entry['low']:.3g} to {entry['high']:.3g}: {interval_text(entry['score'], '.2f')}, n {entry['concepts']}"
        for entry in curve["bins"]
        if entry["score"]
    ]
    if curve["zeros"]:
        parts.append(f"never: {interval_text(curve['zeros']['score'], '.2f')}, n {curve['zeros']['concepts']}")
    return f"{arm.arm}, {curve['concepts']} concepts: {'; '.join(parts)}."
