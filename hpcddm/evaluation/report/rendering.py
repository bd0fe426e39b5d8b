"""Pages from templates: self-contained HTML, without network access and without scripts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from hpcddm.errors.printing import MAX_LINE_CHARACTERS, printable
from hpcddm.evaluation.report import image_grids, plots
from hpcddm.evaluation.report.cluster_facts import THRESHOLDS, PartitionFacts
from hpcddm.evaluation.report.report_content import ClusterContent

CLUSTER_COLUMNS = (8, 7, 6)
CLUSTER_WIDTH = 490
"""Largest width of a cluster's grids in CSS pixels."""
PIXELATED_BELOW = 65


def render(template: str, **values: Any) -> str:
    """Render a page as HTML in ASCII; other characters in names are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True, finalize=_printable,
    )  # fmt: skip
    environment.globals.update(
        swatch=plots.swatch, colour=plots.colour_of, named=_named, thresholds=THRESHOLDS, largest=_largest
    )
    page = environment.get_template(template).render(**values)
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _printable(value: object) -> object:
    """Make texts printable, such as names and captions of the data, except texts that are already HTML."""
    return printable(value, MAX_LINE_CHARACTERS) if isinstance(value, str) and not isinstance(value, Markup) else value


def _named(shares: Sequence[float]) -> str:
    """Describe the shares of experts."""
    return ", ".join(f"expert {expert} {share:.0%}" for expert, share in enumerate(shares) if share >= 0.005)


def _largest(facts: PartitionFacts) -> int:
    return max(cluster.images for cluster in facts.clusters)


def shown_clusters(clusters: list[ClusterContent], facts: PartitionFacts | None) -> list[dict[str, Any]]:
    """Return the clusters as the templates show them: with their facts, where these are known, and their grids."""
    return [
        {
            "index": cluster.index, "size": cluster.size, "facts": facts.clusters[cluster.index] if facts else None,
            "grids": [(kind, _cluster_picture(images)) for kind, images in cluster.images.items() if len(images)],
        }
        for cluster in clusters
    ]  # fmt: skip


def _cluster_picture(images: np.ndarray) -> dict[str, Any]:
    """Arrange a cluster's images in the most columns at which small images are at least doubled."""
    doubled = [many for many in CLUSTER_COLUMNS if image_grids.enlargement(images.shape[2], many, CLUSTER_WIDTH) > 1]
    return grid_image(images, min(len(images), (doubled or CLUSTER_COLUMNS)[0]), CLUSTER_WIDTH)


def grid_image(images: np.ndarray, columns: int, max_width: int, full: int = CLUSTER_COLUMNS[-1]) -> dict[str, Any]:
    """Make a grid with its size on the page; the browser enlarges it by a whole factor, which keeps the file small.

    images: uint8 (N, H, W, C); max_width: its largest width in CSS pixels; full: least columns of a row that fills it.
    """
    grid = image_grids.grid(images, columns, scale=1)
    # Fewer images than columns must not be larger than those of a full row.
    factor = image_grids.enlargement(images.shape[2], max(columns, full), max_width)
    return {
        "uri": Markup(image_grids.data_uri(grid)), "width": grid.width * factor, "height": grid.height * factor,
        "count": len(images), "pixelated": max(images.shape[1:3]) < PIXELATED_BELOW,
    }  # fmt: skip
