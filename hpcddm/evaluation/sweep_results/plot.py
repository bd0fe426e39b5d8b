"""Plot of a sweep: a panel for each metric, a line for each arm where one number varies, else bars."""

import io
import math
from pathlib import Path
from typing import Any, Literal

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hpcddm.evaluation.metrics import columns, headlines, led_by
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.sweep_results.setting_results import FLOOR, SettingResult, leading_metric, varied_keys
from hpcddm.files import atomic

COLOURS = ("#5453B0", "#FB8E77", "#178DAA", "#9D8E00", "#C5556A", "#02C5B2")
MARKERS = "osD^vP"
LOOK = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
FLOOR_STYLE = {"color": "0.45", "linestyle": (0, (4, 2)), "linewidth": 1.2}
MAX_BARS = 40
"""Largest number of settings shown as bars; of more the best ones are shown."""
LINE_ROWS = 2
MISSING = float("nan")


def write_plot(rows: list[SettingResult], path: Path, title: str) -> bool:
    """Write the plot as PNG and return whether there was anything to show."""
    complete = [row for row in rows if row.arms]
    if not complete:
        return False
    keys = varied_keys(rows)
    key = next(iter(keys), "")
    is_line = len(keys) == 1 and all(_is_number(row.setting.get(key)) for row in rows)
    with style.context(["default", LOOK]):
        figure = _lines(complete, key) if is_line else _bars(complete, list(keys))
        done = f"{len(complete)} of {len(rows)} settings"
        figure.suptitle(f"{title}: {done}", x=0.01, ha="left", size=11)
        save(figure, path)
    return True


def _lines(rows: list[SettingResult], key: str) -> Figure:
    rows = sorted(rows, key=lambda row: row.setting[key])
    metrics = led_by(leading_metric(rows).key, columns())
    width = -(-len(metrics) // LINE_ROWS)
    figure = Figure(figsize=(3.25 * width, 6.4), layout="constrained")
    panels = [*figure.subplots(LINE_ROWS, width, squeeze=False).flat]
    for axes, metric in zip(panels, metrics, strict=False):
        for number, arm in enumerate(arms_of(rows)):
            points = [(row.setting[key], row.arms[arm].get(metric.key, MISSING)) for row in rows if arm in row.arms]
            axes.plot(*zip(*points, strict=True), **_line_style(arm, number), label=arm, markersize=4)
        axes.set(xlabel=key)
        _dress(axes, metric)
    for unused in panels[len(metrics) :]:
        unused.set_axis_off()
    _legend(figure, axes)
    return figure


def _bars(rows: list[SettingResult], keys: list[str]) -> Figure:
    arms, lead = arms_of(rows), leading_metric(rows)
    shown = best_settings(rows) if len(rows) > MAX_BARS else rows
    names = [", ".join(_value(row.setting.get(key, "")) for key in keys) or row.label for row in shown]
    drawn = [arm for arm in arms if arm != FLOOR]
    metrics = led_by(lead.key, headlines())
    figure = Figure(figsize=(2.75 * len(metrics), 1.6 + len(shown) * (0.14 + 0.13 * len(drawn))), layout="constrained")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False).flat
    for axes, metric in zip(panels, metrics, strict=True):
        height = 0.8 / len(drawn)
        for number, arm in enumerate(drawn):
            places = [place + (number - (len(drawn) - 1) / 2) * height for place in range(len(shown))]
            values = [row.arms.get(arm, {}).get(metric.key, MISSING) for row in shown]
            axes.barh(places, values, height, color=COLOURS[number % len(COLOURS)], label=arm)
        floor = [row.arms[FLOOR].get(metric.key, MISSING) for row in shown]
        if max(floor) - min(floor) < 1e-9:
            axes.axvline(floor[0], **FLOOR_STYLE, label=FLOOR)
        axes.set_yticks(range(len(shown)), names)
        axes.tick_params(axis="y", length=0)
        axes.margins(y=0.01)
        _dress(axes, metric, "x")
    axes.invert_yaxis()
    cut = f"; the {MAX_BARS} best settings by {lead.title}" if len(shown) < len(rows) else ""
    figure.supylabel(", ".join(key.rpartition(".")[2] for key in keys) + cut, size=9)
    _legend(figure, axes)
    return figure


def best_settings(rows: list[SettingResult]) -> list[SettingResult]:
    """List the settings with the best arms by the metric that leads, at most as many as the plot has bars for."""
    metric = leading_metric(rows)

    def rank(row: SettingResult) -> float:
        values = [figures[metric.key] for arm, figures in row.arms.items() if arm != FLOOR and metric.key in figures]
        return min(map(metric.better.rank, values), default=math.inf)

    return sorted(rows, key=rank)[:MAX_BARS]


def _dress(axes: Axes, metric: Metric, axis: Literal["x", "y"] = "y") -> None:
    axes.set_title(f"{metric.title}  ({metric.better.value})", size=9, loc="left")
    axes.grid(axis=axis, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    if metric.is_share:
        (axes.yaxis if axis == "y" else axes.xaxis).set_major_formatter(lambda value, place: f"{value:.0%}")


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 7), frameon=False)


def arms_of(rows: list[SettingResult]) -> list[str]:
    """Return the arms of all settings, the floor last."""
    arms = dict.fromkeys(arm for row in rows for arm in row.arms if arm != FLOOR)
    return [*arms, FLOOR]


def _line_style(arm: str, number: int) -> dict[str, Any]:
    if arm == FLOOR:
        return FLOOR_STYLE
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "linewidth": 1.5}


def _value(value: Any) -> str:
    text = "+".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 28 else f"{text[:27]}~"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def save(figure: Figure, path: Path) -> None:
    """Write the file atomically, because two processes may write it at once."""
    file = io.BytesIO()
    FigureCanvasAgg(figure).print_png(file)
    with atomic.replacing(path, durable=False) as staged:
        staged.write_bytes(file.getvalue())
