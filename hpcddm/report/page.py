"""Writes the report: one HTML page that holds everything it shows, needs no network and runs no script."""

import math
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from hpcddm.report import pictures, plots
from hpcddm.report.content import Content
from hpcddm.rundir import atomic

TEMPLATE = Path(__file__).with_name("page.html.j2")
MONOLITH = "monolith"
FLOOR = "real against real"
MEASURES = {"fd": min, "kid": min, "agreement": max}
"""What tells arms apart, and which of two values is better."""
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")
CLUSTER_COLUMNS, GALLERY_COLUMNS = (8, 7, 6), 10
CLUSTER_ROOM, GALLERY_ROOM = 490, 880
"""CSS pixels that a cluster's and a gallery's grid may fill."""
CLUSTER_PIXELS, GALLERY_PIXELS = 64, 96
"""Larger images are shrunk to this, for a page with sixteen experts' pictures should still open quickly."""
PIXELATED_BELOW = 65


def write(content: Content, path: Path) -> None:
    """Write the page in one step; equal contents give equal bytes."""
    atomic.write_text(path, render(content))


def render(content: Content) -> str:
    """The page as HTML, in ASCII whatever the names hold."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    metrics = content.metrics
    columns = class_columns(content.gallery_classes)
    page = environment.from_string(TEMPLATE.read_text()).render(
        name=content.name,
        facts=content.facts,
        metrics=metrics,
        has_monolith=MONOLITH in metrics["arms"],
        missing={plots.expert_of(key) for key in metrics["missing_experts"]},
        rows=table(metrics),
        counts=sorted({arm["images"] for arm in (*metrics["arms"].values(), metrics["floor"])}),
        clusters=[(cluster, _cluster_picture(cluster.images)) for cluster in content.clusters],
        images=sum(cluster.size for cluster in content.clusters),
        columns=columns,
        galleries=[(gallery.arm, _gallery_picture(gallery.images, len(columns))) for gallery in content.galleries],
        losses=_losses(content.curves),
        accuracy=_accuracy(content),
        usage={arm: plots.usage(f"usage-{arm}", shares) for arm, shares in content.usage.items()},
        label_of=plots.label_of, expert_of=plots.expert_of, swatch=plots.swatch,
    )  # fmt: skip
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def table(metrics: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The texts of the table by arm, the floor last; `best` names the measures in which no arm reads better."""
    arms = metrics["arms"]
    monolith = arms.get(MONOLITH, {}).get("train_flops")
    everyone = arms | {FLOOR: metrics["floor"]}
    rows = {name: {"images": f"{arm['images']:,}", "best": []} for name, arm in everyone.items()}
    for name, arm in arms.items():
        rows[name]["flops"] = flops_text(arm["train_flops"])
        rows[name]["ratio"] = f"{arm['train_flops'] / monolith:.2f}" if monolith else None
    for measure, better in MEASURES.items():
        values = [arm[measure] for arm in arms.values() if math.isfinite(arm[measure])]
        # The z writes a distance that rounds to nothing as 0.0 and not as -0.0.
        form = ".1%" if measure == "agreement" else f"z.{_decimals(values)}f"
        for name, arm in everyone.items():
            rows[name][measure] = format(arm[measure], form)
            if name != FLOOR and len(arms) > 1 and values and rows[name][measure] == format(better(values), form):
                rows[name]["best"].append(measure)
    return rows


def flops_text(flops: float) -> str:
    """A number of operations with three digits and a prefix: 1.23 PFLOP."""
    power = min(len(PREFIXES) - 1, int(math.log10(flops)) // 3) if flops >= 1 else 0
    value = flops / 1000**power
    return f"{value:.{_decimals([value])}f} {PREFIXES[power]}FLOP"


def class_columns(classes: list[int]) -> list[list[int]]:
    """The classes in each column of a gallery: where classes repeat, every column is one class throughout."""
    count = len(classes)
    period = next((lag for lag in range(1, count) if classes[lag:] == classes[:-lag]), count)
    columns = GALLERY_COLUMNS // period * period if 0 < period <= GALLERY_COLUMNS else GALLERY_COLUMNS
    return [list(dict.fromkeys(classes[column::columns])) for column in range(min(columns, count))]


def _decimals(values: list[float]) -> int:
    """Decimals that give the smallest of the values three digits."""
    smallest = min((abs(value) for value in values if value), default=1)
    return max(0, min(6, 2 - math.floor(math.log10(smallest))))


def _cluster_picture(images: np.ndarray) -> dict[str, Any] | None:
    """Whole rows of a cluster's images, in the most columns at which small images are still at least doubled."""
    if not len(images):
        return None
    images = pictures.shrink(images, CLUSTER_PIXELS)
    doubled = [many for many in CLUSTER_COLUMNS if pictures.enlargement(images.shape[2], many, CLUSTER_ROOM) > 1]
    columns = min(len(images), (doubled or CLUSTER_COLUMNS)[0])
    return _picture(images[: len(images) // columns * columns], columns, CLUSTER_ROOM)


def _gallery_picture(images: np.ndarray, columns: int) -> dict[str, Any]:
    return _picture(pictures.shrink(images, GALLERY_PIXELS), columns, GALLERY_ROOM)


def _picture(images: np.ndarray, columns: int, room: int) -> dict[str, Any]:
    """A grid as the page shows it; the browser enlarges it by a whole factor, which keeps the file small."""
    picture = pictures.grid(images, columns, scale=1)
    # Fewer images than columns must not be larger than those of a full row.
    factor = pictures.enlargement(images.shape[2], max(columns, CLUSTER_COLUMNS[-1]), room)
    return {
        "uri": pictures.data_uri(picture), "width": picture.width * factor, "height": picture.height * factor,
        "count": len(images), "pixelated": max(images.shape[1:3]) < PIXELATED_BELOW,
    }  # fmt: skip


def _losses(curves: dict[str, list[tuple[int, float]]]) -> dict[str, str]:
    """A plot of the denoisers, the monolith first, and one of the classifiers, with all units that logged something."""
    logged = {key: curves[key] for key in sorted(curves, key=lambda key: (MONOLITH not in key, key)) if curves[key]}
    denoisers = {key: curve for key, curve in logged.items() if key.startswith("train/")}
    others = {key: curve for key, curve in logged.items() if key not in denoisers}
    groups = {"denoisers": denoisers, "classifiers": others}
    return {name: plots.losses(name, group) for name, group in groups.items() if group}


def _accuracy(content: Content) -> dict[str, Any] | None:
    """The router's plot, with what one is right in who always names the largest cluster."""
    if not content.noise_levels:
        return None
    sizes = [cluster.size for cluster in content.clusters]
    plot = plots.router_accuracy("router", content.noise_levels, content.router_accuracy, len(sizes))
    return {"plot": plot, "largest": f"{max(sizes) / sum(sizes):.0%}"}
