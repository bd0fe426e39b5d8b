"""The report's plots: inline SVG that takes font and text colour from the page, so that dark mode needs no second one.

An expert has the same colour everywhere. Colours alone never distinguish experts: from the ninth expert on the
colours repeat with dashes or hatching, and a legend names every line and area.
"""

import html
import io
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullLocator, PercentFormatter

COLOURS = ("#5453B0", "#FB8E77", "#178DAA", "#9D8E00", "#C5556A", "#02C5B2", "#BDA0FF", "#795900")
"""From a random search for colours far apart in protan, deutan and tritan vision too, visible on white and black."""
DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1.2)))
HATCHES = (None, "////", "....")
MAX_POINTS = 200

# Stand-ins that matplotlib can parse; in the SVG they become the page's own colours.
TEXT, SOFT, RULE, PAPER = "#010101", "#020202", "#030303", "#040404"
PAGE_COLOURS = {TEXT: "currentColor", SOFT: "var(--soft)", RULE: "var(--rule)", PAPER: "var(--paper)"}
NEUTRAL = (
    {"color": TEXT, "linewidth": 2}, {"color": SOFT}, {"color": TEXT, "linestyle": DASHES[2]},
    {"color": SOFT, "linestyle": DASHES[1], "linewidth": 2}, {"color": TEXT, "linestyle": DASHES[1], "linewidth": 1},
    {"color": SOFT, "linestyle": DASHES[2], "linewidth": 2},
)  # fmt: skip
"""Line styles of everything but experts, in none of the experts' colours."""
STYLE = {
    "svg.fonttype": "none", "text.parse_math": False, "font.size": 10,
    "text.color": TEXT, "axes.labelcolor": TEXT, "axes.edgecolor": RULE, "xtick.color": RULE, "ytick.color": RULE,
    "xtick.labelcolor": TEXT, "ytick.labelcolor": TEXT, "grid.color": RULE, "grid.linewidth": 0.6, "axes.grid": True,
    "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "axes.facecolor": "none",
    "figure.facecolor": "none", "legend.frameon": False, "lines.linewidth": 1.5, "hatch.linewidth": 0.8,
}  # fmt: skip
WIDTH = 6.4
Variant = TypeVar("Variant")
LEGEND_COLUMNS = 5


def expert_of(name: str) -> int | None:
    """Return the expert's number in 'expert-2' or 'train/expert-02'; None for anything else."""
    match = re.fullmatch(r"(?:train/)?expert-(\d+)", name)
    return int(match[1]) if match else None


def label_of(name: str) -> str:
    """Return the label of an arm or a unit: 'expert 2', 'monolith', 'classifier'; of a stage's only unit the stage."""
    expert = expert_of(name)
    return name.removesuffix("/all").rpartition("/")[2] if expert is None else f"expert {expert}"


def losses(name: str, curves: dict[str, list[tuple[int, float]]]) -> str:
    """Plot loss against images seen, both logarithmic, one line per unit; `name` must differ among a page's plots."""
    with page_style(name):
        rows = -(-len(curves) // LEGEND_COLUMNS)
        figure, axes = new_figure(2.9 + 0.2 * rows)
        points = [_averaged(curve) for curve in curves.values()]
        for number, (unit, line) in enumerate(zip(curves, points, strict=True)):
            marker = "o" if len(line) == 1 else None
            axes.plot(*line.T, **_line_style(unit, number), label=label_of(unit), marker=marker, markersize=3)
        _logarithmic(axes, np.concatenate(points))
        axes.set(xlabel="images seen", ylabel="mean loss")
        figure.legend(loc="outside lower center", ncols=min(len(curves), LEGEND_COLUMNS), handlelength=1.6)
        reached = ", ".join(f"{label_of(unit)} {line[-1, 1]:.3g}" for unit, line in zip(curves, points, strict=True))
        return as_svg(figure, name, f"Loss against images seen; the last values are: {reached}.")


def by_time(
    name: str,
    times: list[float],
    lines: Mapping[str, Sequence[float | None]],
    label: str,
    percent: bool = False,
    levels: dict[str, float] | None = None,
    limit: float | None = None,
) -> str:
    """Plot values against the noise level t, one line per key, from t = 0 to 1 and from a value of 0 up.

    lines: None means a value that is not finite. levels: values of dashed lines by name; limit: end of the axis,
    by default above the highest point.
    """
    levels, points = levels or {}, {way: np.array(values, dtype=float) for way, values in lines.items()}
    with page_style(name):
        figure, axes = new_figure(2.7 + 0.2 * -(-(len(lines) + len(levels)) // LEGEND_COLUMNS))
        for number, (way, values) in enumerate(points.items()):
            axes.plot(times, values, **_line_style(way, number), label=way, marker="o", markersize=3)
        for way, level in levels.items():
            axes.axhline(level, color=SOFT, linestyle=DASHES[1], linewidth=1, label=way)
        axes.set(xlabel="noise level t (0 is the image, 1 is noise)", ylabel=label)
        everything = np.concatenate([*points.values(), list(levels.values())])
        highest = everything[np.isfinite(everything)].max(initial=0)
        axes.set(xlim=(0, 1), ylim=(0, limit or 1.05 * highest or 1))
        if percent:
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0 if axes.get_ylim()[1] > 0.05 else 1))
        figure.legend(loc="outside lower center", ncols=min(len(lines) + len(levels), LEGEND_COLUMNS))
        form = ".1%" if percent else ".3g"
        order = np.argsort(times)
        ends = ", ".join(
            f"{way} from {values[order[0]]:{form}} to {values[order[-1]]:{form}}" for way, values in points.items()
        )
        more = "".join(f"; {way}: {level:{form}}" for way, level in levels.items())
        return as_svg(figure, name, f"{label.capitalize()} from little to much noise: {ends}{more}.")


def usage(name: str, shares: np.ndarray, times: list[float]) -> str:
    """Plot each expert's share of the samples as sampling goes from t = 1 to 0, stacked.

    shares: (steps, K); times: start of each step; it ends at the start of the next one, the last at 0.
    """
    with page_style(name):
        # Axes and labels take 0.7 inches; with many experts the areas need height for their numbers.
        height = 1.9 + 0.1 * max(4, shares.shape[1])
        figure, axes = new_figure(height)
        axes.grid(False)
        edges = np.array([*times, 0.0])
        tops = np.concatenate([np.zeros((len(shares), 1)), shares.cumsum(axis=1)], axis=1)
        for expert in range(shares.shape[1]):
            lower, upper = (np.append(column, column[-1]) for column in (tops[:, expert], tops[:, expert + 1]))
            axes.fill_between(
                edges, lower, upper, step="post", facecolor=colour_of(expert), hatch=_cycled(HATCHES, expert),
                edgecolor=PAPER, linewidth=0.7,
            )  # fmt: skip
            _name_area(axes, expert, edges, lower, upper, room=0.14 / (height - 0.7))
        axes.set(xlabel="t, from noise to image", ylabel="share of samples", xlim=(1, 0), ylim=(0, 1))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        means = ", ".join(f"expert {expert} {share:.0%}" for expert, share in enumerate(shares.mean(axis=0)))
        return as_svg(figure, name, f"Expert usage over sampling time; the means are: {means}.")


def swatch(expert: int) -> str:
    """Return the CSS background that shows an expert's colour, striped where the colours repeat."""
    colour = colour_of(expert)
    if _cycled(HATCHES, expert) is None:
        return colour
    return f"repeating-linear-gradient(135deg, {colour} 0 3px, var(--paper) 3px 4px)"


def page_style(name: str) -> AbstractContextManager:
    """Return the plots' style on top of matplotlib's defaults: a user's matplotlibrc must not change the page."""
    return style.context(["default", STYLE | {"svg.hashsalt": name}])


def new_figure(height: float) -> tuple[Figure, Axes]:
    """Return a figure as wide as all plots, `height` inches high, and its only axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def _cycled(variants: Sequence[Variant], expert: int) -> Variant:
    return variants[expert // len(COLOURS) % len(variants)]


def colour_of(expert: int) -> str:
    """Return the colour of an expert, without its stripes."""
    return COLOURS[expert % len(COLOURS)]


def _line_style(name: str, number: int) -> dict:
    """Return an expert's style; for anything else the neutral one at its place in the plot."""
    expert = expert_of(name)
    if expert is None:
        return NEUTRAL[number % len(NEUTRAL)]
    return {"color": colour_of(expert), "linestyle": _cycled(DASHES, expert)}


def _averaged(curve: list[tuple[int, float]]) -> np.ndarray:
    """Return the finite points (n, 2) of a curve, neighbours averaged where a logarithmic axis would crowd them."""
    points = np.array(curve, dtype=float).reshape(-1, 2)
    points = points[np.isfinite(points).all(axis=1) & (points > 0).all(axis=1)]
    if len(points) <= MAX_POINTS:
        return points if len(points) else np.full((1, 2), np.nan)
    edges = np.unique(np.geomspace(1, len(points), MAX_POINTS).astype(int))
    return np.array([part.mean(axis=0) for part in np.split(points, edges[:-1])])


def _logarithmic(axes: Axes, points: np.ndarray) -> None:
    """Set logarithmic axes with few round ticks, for matplotlib leaves less than a decade nearly without any."""
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        return
    axes.set(xscale="log", yscale="log")
    for axis, values, form in ((axes.xaxis, points[:, 0], EngFormatter(sep="")), (axes.yaxis, points[:, 1], "{x:g}")):
        axis.set_major_locator(FixedLocator(round_values(values.min(), values.max())))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(form)


def round_values(low: float, high: float) -> list[float]:
    """Return at least four round values from low to high where there are so many."""
    if low == high:
        return [low]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        values = [mantissa * 10.0**decade for decade in decades for mantissa in mantissas]
        values = [value for value in values if low <= value <= high]
        if len(values) >= 4:
            return values
    return [value for value in MaxNLocator(4).tick_values(low, high) if value > 0]


def _name_area(axes: Axes, expert: int, edges: np.ndarray, lower: np.ndarray, upper: np.ndarray, room: float) -> None:
    """Write an expert's number in the middle of its area, or else where the area is highest, if that is `room`."""
    centres = (edges[:-1] + edges[1:]) / 2
    heights = np.where(abs(centres - 0.5) < 0.47, (upper - lower)[:-1], 0)
    place = len(heights) // 2 if heights[len(heights) // 2] >= room else heights.argmax()
    if heights[place] >= room:
        red, green, blue = (int(colour_of(expert)[place : place + 2], 16) for place in (1, 3, 5))
        ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 130 else "white"
        middle = (lower[place] + upper[place]) / 2
        axes.text(centres[place], middle, str(expert), color=ink, ha="center", va="center_baseline", weight="bold")


def as_svg(figure: Figure, name: str, description: str) -> str:
    """Render the figure as an <svg> element for an HTML page: no prolog or metadata, unique ids, the page's colours."""
    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(file, metadata=nothing)
    text = file.getvalue()
    box = re.findall(r'viewBox="[^"]*"', text)[0]
    # The <style> that comes first would apply to the whole page; the page's CSS has the same rules for its plots.
    text = f'<svg {box} role="img" aria-label="{html.escape(description)}">' + text[text.index("</defs>") + 7 :]
    text = re.sub(r" font-family: [^;]*;", "", text.replace("xlink:href", "href"))
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for stand_in, colour in PAGE_COLOURS.items():
        text = text.replace(stand_in, colour)
    return text.strip()
