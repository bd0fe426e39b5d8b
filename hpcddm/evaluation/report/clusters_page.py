"""Page about the clusters, to look at before experts are trained on them."""

from pathlib import Path

from hpcddm.evaluation.report import rendering
from hpcddm.evaluation.report.cluster_facts import Facts
from hpcddm.evaluation.report.content import Cluster
from hpcddm.files import atomic


def write(name: str, facts: Facts, clusters: list[Cluster], path: Path) -> None:
    """Write the page in one step; equal contents give equal bytes."""
    atomic.write_text(path, render(name, facts, clusters))


def render(name: str, facts: Facts, clusters: list[Cluster]) -> str:
    """Render the page of an experiment's clusters as HTML in ASCII."""
    shown = rendering.shown_clusters(clusters, facts)
    return rendering.render("clusters.html.j2", name=name, facts=facts, clusters=shown, images=facts.images)
