"""Page about the clusters, to look at before experts are trained on them."""

from hpcddm.evaluation.report import rendering
from hpcddm.evaluation.report.cluster_facts import PartitionFacts
from hpcddm.evaluation.report.report_content import ClusterContent


def render(name: str, facts: PartitionFacts, clusters: list[ClusterContent]) -> str:
    """Render the page of an experiment's clusters as HTML in ASCII."""
    shown = rendering.shown_clusters(clusters, facts)
    return rendering.render("clusters.html.j2", name=name, facts=facts, clusters=shown, images=facts.images)
