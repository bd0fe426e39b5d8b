"""The table of results on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from hpcddm.commands.terminal import UNDERLINED, make_table, print_table
from hpcddm.errors.printing import echo
from hpcddm.evaluation.metrics import columns, headlines, led_by, short_key
from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.runs.stored_results import arm_metrics

COUNTS = {"images": ("images", ",.0f"), "train_flops": ("training\nFLOPs", ".3g")}
"""Columns after those of the metrics: key -> title and format."""


def print_results_table(results: dict[str, Any]) -> None:
    """Print the arms, the floor and missing units, from the facts of the report's manifest."""
    everyone = {**arm_metrics(results), "floor: real images": results["floor"]}
    # Those that compare classes are left out of runs whose images have none.
    led = led_by(results["leading_metric"], columns())
    shown = [metric for metric in led if any(metric.key in arm for arm in everyone.values())]
    titles = [metric.title.replace(" ", "\n") for metric in shown]
    rows = []
    for name, arm in everyone.items():
        # The floor has no training.
        counts = (format(arm[key], form) if key in arm else "" for key, (_, form) in COUNTS.items())
        rows.append([name, *(metric.text_of(arm) for metric in shown), *counts])
    columns_shown = ["arm", *titles, *(name for name, _ in COUNTS.values())]
    print_table(make_table(columns_shown, rows, ["arm"], _title(shown), **UNDERLINED))
    if others := _of_other_extractors(everyone):
        _print_figures(everyone, others)
    for label, dimension in results["few_images"].items():
        echo(f"note: {dimension} features of {label} need {2 * dimension:,} images for FD; compare by KID instead")
    echo(*(f"warning: {line}" for line in results.get("warnings", ())))
    # Older reports have no entry for missing experts.
    if results.get("remark"):
        echo(f"made with {results['remark']}")


def _of_other_extractors(everyone: Mapping[str, Mapping[str, Any]]) -> dict[str, Metric]:
    """Return the headlines by extractors after the first one, by their full keys."""
    heads = {metric.key: metric for metric in headlines()}
    figures = [key for key in next(iter(everyone.values())) if "@" in key and short_key(key) in heads]
    first = {short_key(key): _extractor(key) for key in reversed(figures)}
    return {key: heads[short_key(key)] for key in figures if first[short_key(key)] != _extractor(key)}


def _extractor(full_key: str) -> str:
    return full_key.split("@")[1]


def _print_figures(everyone: Mapping[str, Mapping[str, Any]], figures: Mapping[str, Metric]) -> None:
    """Print some figures, one in each line, with a column for each arm."""
    rows = (
        [key, *(metric.text(arm[key]) if key in arm else "" for arm in everyone.values())]
        for key, metric in figures.items()
    )
    names = ["figure", *(name.split(":")[0] for name in everyone)]
    print_table(make_table(names, rows, ["figure"], "by other extractors", **UNDERLINED))


def _title(shown: Sequence[Metric]) -> str:
    """Name the metrics whose higher values are not better."""
    parts = ["held-out images as reference"]
    for better in (Better.LOWER, Better.NEAR_ONE):
        if titles := [metric.title for metric in shown if metric.better is better]:
            parts.append(f"{better.value}: {', '.join(titles)}")
    return "; ".join(parts)
