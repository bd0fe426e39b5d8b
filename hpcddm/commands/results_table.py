"""The table of results on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from hpcddm.commands.terminal import needed_columns, plain_text, table_console
from hpcddm.errors.printing import echo
from hpcddm.evaluation.metrics import columns_led_by
from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.runs.stored_results import arm_metrics

COUNTS = {"images": ("images", ",.0f"), "train_flops": ("training\nFLOPs", ".3g")}
"""Columns after those of the metrics: key -> title and format."""


def print_results_table(results: dict[str, Any]) -> None:
    """Print the arms, the floor and missing units, from the facts of the report's manifest."""
    everyone = {**arm_metrics(results), "floor: real images": results["floor"]}
    # Those that compare classes are left out of runs whose images have none.
    led = columns_led_by(results["leading_metric"])
    shown = [metric for metric in led if any(metric.key in arm for arm in everyone.values())]
    table = Table(title=_title(shown), title_justify="left", box=box.SIMPLE, padding=(0, 0, 0, 1))
    table.add_column("arm", no_wrap=True)
    for title in [
        *(metric.title.replace(" ", "\n") for metric in shown),
        *(name for name, _ in COUNTS.values()),
    ]:
        table.add_column(title, justify="right", vertical="bottom", no_wrap=True)
    for name, arm in everyone.items():
        table.add_row(plain_text(name), *(metric.text_of(arm) for metric in shown), *_counts(arm))
    table_console(needed_columns(table), wraps_lines=True).print(table)
    # Older reports have no entry for missing experts.
    if results.get("remark"):
        echo(f"made with {results['remark']}")


def _title(shown: Sequence[Metric]) -> str:
    """Name the metrics whose higher values are not better."""
    parts = ["held-out images as reference"]
    for better in (Better.LOWER, Better.NEAR_ONE):
        if titles := [metric.title for metric in shown if metric.better is better]:
            parts.append(f"{better.value}: {', '.join(titles)}")
    return "; ".join(parts)


def _counts(arm: Mapping[str, Any]) -> list[str]:
    """Format the numbers that are not metrics; the floor has no training."""
    return [format(arm[key], form) if key in arm else "" for key, (_, form) in COUNTS.items()]
