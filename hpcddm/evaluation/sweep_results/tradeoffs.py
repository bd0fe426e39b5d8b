"""Picture of what a sweep's settings trade: the leading metric against recall, and against evaluations of networks."""

from pathlib import Path

from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from hpcddm.config.sweep import REPORTED
from hpcddm.evaluation.sweep_results.plot import COLOURS, LOOK, MARKERS, arms_of, save
from hpcddm.evaluation.sweep_results.setting_results import FLOOR, SettingResult, leading_metric
from hpcddm.runs.stored_results import EVALUATIONS

RECALL = "recall"
TITLES = {RECALL: "recall  (higher is better)", EVALUATIONS: "evaluations of networks per image"}
"""Titles of the horizontal axes, by figure."""


def write_tradeoffs(rows: list[SettingResult], path: Path) -> None:
    """Write the picture as PNG; none if no row has these figures.

    A filled mark is a setting chosen by `tune`, with the figures of the samples that report it.
    """
    metric = leading_metric(rows)
    points = {
        (key, arm, is_reported): found
        for key in TITLES
        for arm in arms_of(rows)
        for is_reported in (False, True)
        if arm != FLOOR and (found := _points(rows, arm, is_reported, key, metric.key))
    }
    if not points:
        return
    with style.context(["default", LOOK]):
        figure = Figure(figsize=(7.5, 3.8), layout="constrained")
        panels = dict(zip(TITLES, figure.subplots(1, len(TITLES), sharey=True), strict=True))
        numbers = {arm: number for number, arm in enumerate(arms_of(rows))}
        for (key, arm, is_reported), found in points.items():
            colour, marker = COLOURS[numbers[arm] % len(COLOURS)], MARKERS[numbers[arm] % len(MARKERS)]
            face, size = (colour, 70) if is_reported else ("none", 24)
            label = f"{arm}, reported" if is_reported else arm
            across, up = zip(*found, strict=True)
            panels[key].scatter(across, up, size, marker=marker, facecolor=face, edgecolor=colour, label=label)
            panels[key].set(xlabel=TITLES[key])
            panels[key].grid(color="0.9", linewidth=0.8)
            panels[key].set_axisbelow(True)
        panels[RECALL].set_ylabel(f"{metric.title}  ({metric.better.value})")
        handles: dict[str, Artist] = {}
        for axes in panels.values():
            handles |= {str(label): handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, frameon=False)
        save(figure, path)


def _points(rows: list[SettingResult], arm: str, is_reported: bool, *keys: str) -> list[tuple[float, ...]]:
    """List the figures `keys` of an arm, for the rows that have them all."""
    figures = [row.arms[arm] for row in rows if arm in row.arms and (REPORTED in row.setting) == is_reported]
    return [tuple(one[key] for key in keys) for one in figures if one.keys() >= set(keys)]
