"""The page about the clusters, alone and as a part of the report."""

import dataclasses
import json

import numpy as np
import pytest

from hpcddm.evaluation.report import clusters_page
from hpcddm.evaluation.report.cluster_facts import CATCH_ALL, FEW_IMAGES, STARVING, ClusterFacts, PartitionFacts
from hpcddm.evaluation.report.report_content import ClusterContent
from hpcddm.files import checked_reads
from tests.evaluation.report.test_page import Page, require_whole

HOSTILE = '<script>alert("1")</script>&amp;\u2028 \U0001f600'


def facts(*images, **changes):
    """Facts about clusters of these sizes, with classes and distances."""
    total = sum(images)
    clusters = [
        ClusterFacts(count, count / total, 0.1 * number, 0, 1.25, [("boot", 0.75), ("bag", 0.25)])
        for number, count in enumerate(images)
    ]
    largest = max(images) * len(images) / total
    made = PartitionFacts(total, clusters, largest, 2.5, 0.5, 0.123, 96, "features", "", "max_share: 0.1")
    return dataclasses.replace(made, **changes)


def with_first(made, **changes):
    """The same, with another first cluster."""
    return dataclasses.replace(made, clusters=[dataclasses.replace(made.clusters[0], **changes), *made.clusters[1:]])


def without_distances(made):
    clusters = [dataclasses.replace(cluster, silhouette=None, neighbour=None) for cluster in made.clusters]
    return dataclasses.replace(made, clusters=clusters, silhouette=None, sampled=0, left_out="random looks at nothing")


def without_classes(made):
    clusters = [dataclasses.replace(cluster, class_entropy=None, classes=[]) for cluster in made.clusters]
    return dataclasses.replace(made, clusters=clusters, class_information=None)


def pictures(made, kinds=("typical", "ambiguous", "random")):
    images = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(3, 8, 8, 1)
    shown = dict.fromkeys(kinds, images)
    return [ClusterContent(number, cluster.images, shown) for number, cluster in enumerate(made.clusters)]


EVEN = facts(3000, 3000, 3000)


@pytest.mark.parametrize(
    "sizes, threshold",
    [
        ((4000, 2000), CATCH_ALL), ((40000, 20000, 20000, 20000), CATCH_ALL), ((2500, 6500, 6000), STARVING),
        ((1000, 1100), FEW_IMAGES),
    ],
)  # fmt: skip
def test_a_warning_begins_behind_its_threshold(sizes, threshold):
    assert facts(*sizes).warnings() == []
    # One image more in the largest cluster, which lies first, and one less in the smallest.
    largest, smallest = sizes.index(max(sizes)), sizes.index(min(sizes))
    behind = list(sizes)
    behind[largest] += threshold == CATCH_ALL
    behind[smallest] -= 1
    (warning,) = facts(*behind).warnings()
    who, what = (largest, "a catch-all") if threshold == CATCH_ALL else (smallest, "starving")
    assert warning.startswith(f"Cluster {who} is {what}: ") and f"(the threshold is {threshold:,g})" in warning


def test_a_cluster_is_not_apart_below_a_silhouette_of_zero():
    assert with_first(EVEN, silhouette=0.0).warnings() == []
    (warning,) = with_first(EVEN, silhouette=-0.001, neighbour=2).warnings()
    assert warning.startswith("Cluster 0 is not apart") and "cluster 2" in warning


def test_the_facts_come_back_from_their_file():
    made = with_first(EVEN, words=[("boot", 0.5, 0.1)], captions=["a boot"], shown={"random": [3, 1]})
    stored = made.as_json()
    assert stored["warnings"] == [] and CATCH_ALL in stored["thresholds"].values()
    again = checked_reads.parse_json(json.dumps(stored | {"of a later version": 1}).encode(), PartitionFacts)
    assert again.clusters[0].shown == {"random": [3, 1]} and again.warnings() == made.warnings()
    assert clusters_page.render("x", again, pictures(made)) == clusters_page.render("x", made, pictures(made))


CASES = {
    "with features and classes": EVEN,
    "without classes": without_classes(EVEN),
    "without features": without_distances(EVEN),
    "with nothing": without_classes(without_distances(EVEN)),
    "captions": with_first(without_classes(EVEN), words=[("boot", 0.5, 0.1)], captions=["a boot", "two boots"]),
    "warnings": facts(9000, 400, 2000),
    "many": facts(*range(3000, 3040)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_page_is_whole_and_self_contained(case, tmp_path):
    made = CASES[case]
    kinds = ("random",) if made.silhouette is None else ("typical", "ambiguous", "random")
    text = clusters_page.render("fashion", made, pictures(made, kinds))
    parsed = require_whole(text)
    assert len(parsed.all("img")) == len(kinds) * len(made.clusters)
    assert ("Silhouette 0.123" in parsed.text) == (made.silhouette is not None)
    assert ("random looks at nothing" in parsed.text) == (made.silhouette is None)
    assert ("Class information 0.500" in parsed.text) == ("Classes: boot 75%" in parsed.text)
    assert ("Reasons to doubt these clusters" in parsed.text) == bool(made.warnings())
    assert all(warning in parsed.text for warning in made.warnings())
    assert "No warning" in parsed.text or "max_share: 0.1." in parsed.text
    for words in ("Words: boot 50% of captions, 10% elsewhere", "two boots"):
        assert (words in parsed.text) == (case == "captions")
    (tmp_path / "clusters.html").write_text(clusters_page.render("fashion", made, pictures(made, kinds)))
    assert (tmp_path / "clusters.html").read_text() == text


def test_what_people_wrote_is_escaped():
    made = with_first(EVEN, classes=[(HOSTILE, 1.0)], words=[(HOSTILE, 0.5, 0.1)], captions=[HOSTILE])
    made = dataclasses.replace(made, remedy=HOSTILE, compared=HOSTILE)
    text = clusters_page.render(HOSTILE, made, pictures(made))
    assert "<script" not in text and text.isascii()
    assert Page(text).text.count('<script>alert("1")</script>&amp;') == 6
