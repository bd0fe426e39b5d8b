"""Writes the report: one self-contained HTML page, without network access and without scripts."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpcddm.evaluation.metrics import all_metrics, columns, led_by, short_key
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.report import concepts_page, decisions_page, image_grids, method_drawing, plots, rendering
from hpcddm.evaluation.report.report_content import ReportContent
from hpcddm.evaluation.result_warnings import at_chance, beyond_real

MONOLITH, STUDENT = "monolith", "student"
FLOOR = "training images"
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")
GALLERY_COLUMNS, GALLERY_WIDTH, GALLERY_PIXELS = 10, 880, 96
"""Images in a row of a gallery, its largest width in CSS pixels, and the largest side of an image."""


def render(content: ReportContent) -> str:
    """Render the page as HTML in ASCII; other characters in names are escaped."""
    metrics = content.metrics
    missing = {plots.expert_of(key) for key in metrics["missing_experts"]}
    columns = class_columns(content.gallery_texts)
    return rendering.render(
        "page.html.j2",
        name=content.name,
        summary=content.summary,
        metrics=metrics,
        asked_for=content.asked_for,
        has_monolith=MONOLITH in metrics["arms"],
        has_student=STUDENT in metrics["arms"],
        titled_metrics=[(one, _titled(one)) for one in _columns(metrics)],
        left_out=[(_titled(metric), metrics["unavailable_metrics"].get(metric.key)) for metric in all_metrics()],
        figures=figure_rows(metrics),
        missing=missing,
        method=method_drawing.values(content, missing),
        rows=table(metrics),
        counts=sorted({arm["images"] for arm in (*metrics["arms"].values(), metrics["floor"])}),
        clusters=rendering.shown_clusters(content.clusters, content.facts),
        facts=content.facts,
        images=sum(cluster.size for cluster in content.clusters),
        columns=columns,
        galleries=[(arm, _gallery_picture(images, len(columns))) for arm, images in content.galleries.items()],
        losses=_losses(content.curves),
        denoisers=content.denoisers,
        routing=_routing(content),
        usage=_usage(content),
        diagnostic_plots=_diagnostic_plots(metrics["diagnostics"]),
        pictures=len(content.gallery_texts),
        gaps={arm: _text(values["refinement_gap"], ".2e") for arm, values in metrics["diagnostics"].items()},
        decisions=content.decisions
        and decisions_page.template_values(content.decisions, content.gallery_texts, content.asked_for),
        concepts=content.concepts and concepts_page.template_values(*content.concepts), label_of=plots.label_of,
        expert_of=plots.expert_of, flops_text=flops_text, count_text=_count_text,
    )  # fmt: skip


@dataclass
class ModelRow:
    """Texts of one model's row in the table of results."""

    images: str
    cells: dict[str, str] = field(default_factory=dict)
    """Value by the key of the metric."""
    best: list[str] = field(default_factory=list)
    """Keys of the metrics with no better text in any arm."""
    verdicts: dict[str, str] = field(default_factory=dict)
    """What the paired difference to the first arm says, by the key of the metric; empty for that arm and the floor."""
    flops: str = ""
    ratio: str = ""


Rows = dict[str, ModelRow]
"""Rows of the table by arm, the floor last."""
ArmFigures = Mapping[str, dict[str, float]]
"""Values by arm, then by the key of the metric."""


def table(metrics: dict[str, Any]) -> Rows:
    """Format the table's rows by arm, the floor last."""
    arms = metrics["arms"]
    monolith = arms.get(MONOLITH, {}).get("train_flops")
    rows = {name: ModelRow(f"{arm['images']:,}") for name, arm in (arms | {FLOOR: metrics["floor"]}).items()}
    for name, arm in arms.items():
        rows[name].flops = flops_text(arm["train_flops"])
        rows[name].ratio = f"{arm['train_flops'] / monolith:.2f}" if monolith else ""
    doubted = beyond_real(metrics)
    for metric in _columns(metrics):
        _add_cells(rows, metric, arms, metrics["floor"])
        for name, differences in metrics["differences"].items():
            full_key = next((key for key in differences if short_key(key) == metric.key), None)
            rows[name].verdicts[metric.key] = differences[full_key]["verdict"] if full_key else ""
        if metric.key not in doubted:
            _mark_best(rows, metric, arms, metrics["baseline"])
    for name in at_chance(metrics):
        rows[name].best.clear()
        rows[name].verdicts = dict.fromkeys(rows[name].verdicts, "")
    return rows


def figure_rows(metrics: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Format all figures of all evaluators by full key and row: value, 95 % interval and verdict."""
    known = {metric.key: metric for metric in all_metrics()}
    rows: dict[str, dict[str, str]] = {}
    everyone = metrics["arms"] | {FLOOR: metrics["floor"]}
    for name, values in everyone.items():
        intervals = metrics["intervals"]["floor" if name == FLOOR else name]
        for key, (low, high) in intervals.items():
            form = value_format(known[short_key(key)], [arm[key] for arm in everyone.values() if key in arm])
            inside = "" if low is None else f" [{low:{form}}, {high:{form}}]"
            verdict = metrics["differences"].get(name, {}).get(key, {}).get("verdict", "")
            rows.setdefault(key, {})[name] = f"{_text(values[key], form)}{inside}" + (f", {verdict}" if verdict else "")
    return rows


def _columns(metrics: dict[str, Any]) -> list[Metric]:
    """List the metrics of the table that there are, the leading one first."""
    led = led_by(metrics["leading_metric"], columns())
    return [metric for metric in led if metric.key not in metrics["unavailable_metrics"]]


def _add_cells(rows: Rows, metric: Metric, arms: ArmFigures, floor: dict[str, float]) -> None:
    """Write one metric into all rows."""
    form = value_format(metric, _finite(arms, metric.key).values())
    for name, row in rows.items():
        values = arms.get(name) or floor
        row.cells[metric.key] = _text(values[metric.key], form) if metric.key in values else ""


def _mark_best(rows: Rows, metric: Metric, arms: ArmFigures, baseline: str) -> None:
    """Mark the best value of an arm that is called better, or that of the baseline if all others are called worse."""
    values = _finite(arms, metric.key)
    if not values:
        return
    best = rows[min(values, key=lambda name: metric.better.rank(values[name]))].cells[metric.key]
    verdicts = {name: rows[name].verdicts.get(metric.key) for name in arms if name != baseline}
    verdicts[baseline] = "better" if set(verdicts.values()) == {"worse"} else ""
    for name, said in verdicts.items():
        if said == "better" and rows[name].cells[metric.key] == best:
            rows[name].best.append(metric.key)


def _finite(arms: ArmFigures, key: str) -> dict[str, float]:
    """Return the finite values of a metric by arm."""
    return {name: arm[key] for name, arm in arms.items() if arm.get(key) is not None}


def _text(value: float | None, form: str) -> str:
    """Format a value of metrics.json, which has None for one that is not finite."""
    return "not finite" if value is None else format(value, form)


def value_format(metric: Metric, values: Iterable[float]) -> str:
    """Return the format of a metric's values; the z writes a distance that rounds to nothing as 0.0 and not as -0.0."""
    return metric.format if metric.digits is None else f"z.{_decimals(values, metric.digits)}f"


def _titled(metric: Metric) -> str:
    """Return the metric's title as it begins a sentence."""
    return metric.title[:1].upper() + metric.title[1:]


def flops_text(flops: float) -> str:
    """Format a number of operations with three digits and a prefix: 1.23 PFLOP."""
    power = min(len(PREFIXES) - 1, int(math.log10(flops)) // 3) if flops >= 1 else 0
    value = flops / 1000**power
    return f"{value:.{_decimals([value], 3)}f} {PREFIXES[power]}FLOP"


def class_columns(classes: list[str]) -> list[list[str]]:
    """Return the classes in each column of a gallery: where classes repeat, every column is one class throughout."""
    count = len(classes)
    period = next((lag for lag in range(1, count) if classes[lag:] == classes[:-lag]), count)
    columns = GALLERY_COLUMNS // period * period if 0 < period <= GALLERY_COLUMNS else GALLERY_COLUMNS
    return [list(dict.fromkeys(classes[column::columns])) for column in range(min(columns, count))]


def _decimals(values: Iterable[float], digits: int) -> int:
    """Return the number of decimals that give the smallest of the values so many digits."""
    smallest = min((abs(value) for value in values if value), default=1)
    return max(0, min(6, digits - 1 - math.floor(math.log10(smallest))))


def _gallery_picture(images: np.ndarray, columns: int) -> dict[str, Any]:
    return rendering.grid_image(image_grids.shrink(images, GALLERY_PIXELS), columns, GALLERY_WIDTH)


def _losses(curves: dict[str, list[tuple[int, float]]]) -> dict[str, str]:
    """Plot the losses of denoisers, the dense ones first, and of classifiers; units without a curve are left out."""
    logged = {key: curves[key] for key in sorted(curves, key=_dense_first) if curves[key]}
    denoisers = {key: curve for key, curve in logged.items() if key.startswith(("train/", "distill/"))}
    others = {key: curve for key, curve in logged.items() if key not in denoisers}
    groups = {"denoisers": denoisers, "classifiers": others}
    return {name: plots.losses(name, group) for name, group in groups.items() if group}


def _dense_first(key: str) -> tuple[int, str]:
    order = (MONOLITH, STUDENT)
    name = key.rpartition("/")[2]
    return (order.index(name) if name in order else len(order)), key


def _count_text(number: int) -> str:
    """Format a number with three digits and a prefix: 675 M."""
    return flops_text(number).removesuffix("FLOP").replace("G", "B").strip()


def _routing(content: ReportContent) -> list[tuple[str, str, str]]:
    """Draw the router's plots, each with its title and a remark."""
    router = content.router
    if router is None:
        return []
    sizes = [cluster.size for cluster in content.clusters]
    largest = f"always naming the largest cluster: {max(sizes) / sum(sizes):.0%}"
    levels = router.noise_levels
    chance = {f"chance, 1/{len(sizes)}": 1 / len(sizes)}
    plot = plots.by_time("router", levels, router.accuracy, "right cluster", percent=True, levels=chance, limit=1.02)
    router_plots = [("Router accuracy", largest, plot)]
    if router.calibration:
        plot = plots.by_time("calibration", levels, router.calibration, "calibration error", percent=True)
        router_plots.append(("Router calibration", "how far its confidence is from being right", plot))
    if router.surprise:
        blind = {f"knowing nothing, ln {len(sizes)}": math.log(len(sizes))}
        plot = plots.by_time("surprise", levels, router.surprise, "nats", levels=blind)
        router_plots.append(("Router surprise", "-ln p of the right cluster", plot))
    return router_plots


def _usage(content: ReportContent) -> dict[str, str]:
    diagnostics = content.metrics["diagnostics"]
    return {
        arm: plots.usage(f"usage-{arm}", shares, diagnostics[arm]["times"]) for arm, shares in content.usage.items()
    }


def _diagnostic_plots(diagnostics: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Draw entropy and disagreement of the arms with several experts, each with its title and a remark."""
    ensembles = {arm: values for arm, values in diagnostics.items() if any(values["disagreement"])}
    if not ensembles:
        return []
    times = next(iter(ensembles.values()))["times"]
    titles = {
        "entropy": ("Router entropy", "nats, along the samples' own way"),
        "disagreement": ("Disagreement of experts", "variance of their velocities under the posterior, per value"),
    }
    titled_plots = []
    for key, (title, remark) in titles.items():
        lines = {arm: values[key] for arm, values in ensembles.items()}
        titled_plots.append((title, remark, plots.by_time(key, times, lines, title.lower())))
    return titled_plots
