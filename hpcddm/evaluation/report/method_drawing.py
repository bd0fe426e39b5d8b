"""Values of the drawing at the top of the report: how the clusters, experts, router and samples of a run belong."""

from collections.abc import Collection
from typing import Any

from hpcddm.evaluation.report import plots, rendering
from hpcddm.evaluation.report.report_content import ClusterContent, ReportContent

MAX_ROWS = 8
"""Clusters that are drawn; of more, a last row gives their number."""
IMAGES, IMAGE_WIDTH = 4, 40
"""Images beside a cluster, and the width of one in the drawing."""
SAMPLES, SAMPLE_COLUMNS = 4, 2


def values(content: ReportContent, missing: Collection[int | None]) -> dict[str, Any]:
    """Return the arguments of the template's macro.

    Args:
        content: Content of the report.
        missing: Indexes of the experts that are missing.
    """
    clusters = content.clusters
    shown = clusters if len(clusters) <= MAX_ROWS else clusters[: MAX_ROWS - 1]
    arm = next(iter(content.usage), None)
    samples = None if arm is None else content.galleries.get(arm)
    return {
        "rows": [
            {
                "index": cluster.index,
                "size": f"{cluster.size:,}",
                "colour": plots.colour_of(cluster.index),
                "is_missing": cluster.index in missing,
                "picture": _picture(cluster),
            }
            for cluster in shown
        ],
        "more": len(clusters) - len(shown),
        "images": sum(cluster.size for cluster in clusters),
        "samples": None if samples is None else rendering.grid_image(samples[:SAMPLES], SAMPLE_COLUMNS, 140, 1),
    }


def _picture(cluster: ClusterContent) -> dict[str, Any] | None:
    """Return the first images of the first kind, the typical ones where they are known; None without images."""
    images = next((images for images in cluster.images.values() if len(images)), None)
    return None if images is None else rendering.grid_image(images[:IMAGES], IMAGES, IMAGES * IMAGE_WIDTH)
