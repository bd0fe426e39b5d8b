"""Page about the clusters, to look at before experts are trained on them."""

from pathlib import Path

from hpcddm.evaluation.report import rendering
from hpcddm.evaluation.report.cluster_facts import PartitionFacts
from hpcddm.evaluation.report.report_content import ClusterContent
from hpcddm.files import atomic


def write(name: str, facts: PartitionFacts, clusters: list[ClusterContent], path: Path) -> None:
    """Write the page in one step; equal contents give equal bytes."""
    atomic.write_text(path, render(name, facts, clusters))


def render(name: str, facts: PartitionFacts, clusters: list[ClusterContent]) -> str:
    """Render the page of an experiment's clusters as HTML in ASCII."""
    shown = rendering.shown_clusters(clusters, facts)
    return rendering.render("clusters.html.j2", name=name, facts=facts, clusters=shown, images=facts.images)
