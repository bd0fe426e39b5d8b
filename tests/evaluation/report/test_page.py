import dataclasses
import functools
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from hpcddm.evaluation import comparisons
from hpcddm.evaluation.metrics import columns
from hpcddm.evaluation.report import page
from hpcddm.evaluation.report import report_content as contents
from hpcddm.evaluation.report.report_content import ClusterContent, RouterContent
from hpcddm.files import atomic

VOID = {"meta", "img", "br", "input"}
DENOISER = ("dit (width 128)", 1_234_567, "epsilon (schedule cosine)")
STEPS, IMAGES = 20, 2000


def compared(arms, floor, dimension=32, step=0.001):
    """What the run's own evaluator says of the arms, as entries of metrics.json; step: a figure's rise per tenth."""

    def figure(key, value):
        return {"metric": key, "value": value, "left_out": [value * (1 + step * tenth) for tenth in range(10)]}

    def figures(values):
        known = [metric for metric in columns() if metric.key in values]
        return {metric.full_key("own", IMAGES): figure(metric.key, values[metric.key]) for metric in known}

    by_arm = {name: figures(values) for name, values in arms.items()}
    return comparisons.summarise({"own": comparisons.ArmComparison(by_arm, figures(floor), IMAGES, dimension)})


def content(experts=4, size=28, channels=1, classes=10, monolith=True, student=False, lacks=()):
    random = np.random.default_rng(0)
    strategies = ["top-1", "top-2", "oracle"]
    dense = ["monolith"] * monolith + ["student"] * student
    arms = dense + strategies

    def pictures(count):
        return random.integers(0, 256, (count, size, size, channels), dtype=np.uint8)

    def diagnosis(arm):
        entropy, disagreement = ([0.0] * STEPS if arm in dense else random.random(STEPS).tolist() for _ in range(2))
        times = [1 - step / STEPS for step in range(STEPS)]
        return {"times": times, "entropy": entropy, "disagreement": disagreement, "refinement_gap": 0.00123}

    values = {
        name: {"fd": 31.86 + place, "kid": 0.0123 - 0.001 * place, "agreement": 0.81 + 0.01 * place,
               "precision": 0.7, "recall": 0.5 + 0.011 * place, "density": 1.1 - 0.1 * place, "coverage": 0.613,
               "diversity": 0.9 + 0.06 * place}
        for place, name in enumerate(arms)
    }  # fmt: skip
    floor = {"fd": 2.11, "kid": -0.00001, "agreement": 0.952, "precision": 0.75, "recall": 0.76,
             "density": 0.998, "coverage": 0.969, "diversity": 1.003}  # fmt: skip
    for figures in (*values.values(), floor):
        for key in lacks:
            figures.pop(key)
    measured = compared(values, floor)
    for name, arm in measured["arms"].items():
        arm["train_flops"] = 1_234_000_000_000_000 if name == "monolith" else 1_250_000_000_000_000
    units = {"monolith": "train/monolith", "student": "distill/student"}
    made = [units[arm] for arm in dense] + [f"train/expert-{index:02d}" for index in range(experts)]
    return contents.ReportContent(
        name="quickstart",
        summary=[("Experts (K)", str(experts)), ("Extractor", "a <small> network & more")],
        metrics=measured | {
            "diagnostics": {name: diagnosis(name) for name in arms},
            "extractors": {"own": {"name": "small_cnn", "sha256": "ab" * 32, "heldout_accuracy": 0.92}},
            "unavailable_metrics": {},
            "classifier": {"name": "small_cnn", "sha256": "cd" * 32, "heldout_accuracy": 0.914, "chance": 0.1},
            "steps": STEPS,
            "guidance": 1.5,
            "missing_experts": [],
            "remark": "",
            "warnings": [],
            "protocol": {"Solver": "euler, 20 steps", "Beside published figures": "not comparable <because>"},
        },
        denoisers=[contents.DenoiserContent(unit, *DENOISER, "bf16", 72_000, 10**15, 7.2, 1.5) for unit in made],
        clusters=[ClusterContent(index, 1000 + 10 * index, {"random": pictures(12)}) for index in range(experts)],
        facts=None,
        asked_for="class",
        gallery_texts=[number % classes for number in range(20)],
        galleries={arm: pictures(20) for arm in [*arms, *(f"expert-{k}" for k in range(experts))]},
        curves={"train/monolith": [[1024, 1.0], [2048, 0.5]], "evaluators/classifier": [[1024, 2.0]], "router/all": []},
        router=RouterContent(
            noise_levels=[0.1, 0.5, 0.9],
            accuracy={"with condition": [0.99, 0.9, 0.6], "without condition": [0.98, 0.8, 0.3]},
            calibration={"without temperature": [0.01, 0.05, 0.1], "with temperature": [0.01, 0.02, 0.03]},
            surprise={"without temperature": [0.01, 0.3, 1.2]},
        ),
        usage={name: random.dirichlet(np.ones(experts), STEPS) for name in strategies},
    )  # fmt: skip


def bare(given):
    """The same without what takes time to draw."""
    return dataclasses.replace(given, clusters=[ClusterContent(0, 9, {"random": np.zeros((1, 8, 8, 1), np.uint8)})],
                               gallery_texts=[], galleries={}, curves={}, router=None, usage={}, denoisers=[],
                               metrics=given.metrics | {"diagnostics": {}})  # fmt: skip


class Page(HTMLParser):
    """Every element with its attributes; every tag is closed in its order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


CASES = {
    "usual": content(),
    "two experts without monolith": content(experts=2, monolith=False),
    "sixteen experts and a student": content(experts=16, size=8, student=True),
    "large and in colour": content(experts=2, size=200, channels=3),
    "a thousand classes": content(classes=1000, channels=3, size=32),
    "no pictures and no plots": bare(content()),
    "no usage": dataclasses.replace(content(), usage={}),
    "no curves": dataclasses.replace(content(), curves={}),
    "no router": dataclasses.replace(content(), router=None),
    "a router whose calibration nobody measured": dataclasses.replace(
        content(), router=RouterContent([0.1, 0.9], {"with condition": [0.9, 0.4]}, {}, {})
    ),
    "no galleries": dataclasses.replace(content(), galleries={}, gallery_texts=[]),
    "an empty cluster": dataclasses.replace(content(experts=2), clusters=[
        ClusterContent(index, 9, {"random": np.zeros((count, 8, 8, 1), np.uint8)}) for index, count in enumerate((0, 3))
    ]),
}  # fmt: skip


@functools.cache
def rendered(case):
    return page.render(CASES[case])


def require_whole(text):
    """A page that needs no other file, in which every picture and plot is described; returns its parts."""
    parsed = Page(text)
    assert text.isascii() and not re.search(r"https?:|file:/|@import|<script|<link", text)
    assert all(address.startswith("#") for address in re.findall(r"url\(([^)]*)\)", text))
    sources, identities = (
        [attributes[key] for _, attributes in parsed.elements if key in attributes] for key in ("src", "id")
    )
    sources += [image["href"] for image in parsed.all("image")]
    aims = [attributes["href"] for tag, attributes in parsed.elements if "href" in attributes and tag != "image"]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert len(identities) == len(set(identities)) and set(aims) <= {f"#{identity}" for identity in identities}
    assert all(image["alt"] for image in parsed.all("img"))
    assert all(plot["role"] == "img" and len(plot["aria-label"]) > 20 for plot in parsed.all("svg"))
    return parsed


@pytest.mark.parametrize("case", CASES)
def test_page_is_whole_and_every_picture_is_there(case):
    given, parsed = CASES[case], require_whole(rendered(case))
    shown = [images for cluster in given.clusters for images in cluster.images.values() if len(images)]
    assert len(parsed.all("img")) == len(given.galleries) + len(shown)


EXPECTED = """
    monolith|top-1|top-2|oracle|training images|31.9|34.9|0.01230|0.00930|2.1|81.0%|95.2%|1.23 PFLOP|
    1.25 PFLOP|1.00|1.01|2,000|small_cnn|91.4%|expert 3|1,030 images|7.2 1.00 PFLOP 1.5|epsilon (schedule cosine)|
    dit (width 128)|1.23 M|72,000|61.3%|0.96|Router calibration|knowing nothing, ln 4|Disagreement of experts|
    Step-refinement gap|oracle 1.23e-03|a <small> network & more|
    hpcddm submit ./experiment.json --run-dir ../quickstart-again
"""


def test_page_holds_every_arm_value_and_fact():
    text = Page(rendered("usual")).text
    assert [words for words in map(str.strip, EXPECTED.split("|")) if words not in text] == []


def test_equal_contents_give_equal_bytes():
    assert page.render(CASES["usual"]).encode() == rendered("usual").encode()


def test_best_is_among_the_arms_and_follows_each_measure():
    rows = page.table(content().metrics)
    assert list(rows) == ["monolith", "top-1", "top-2", "oracle", page.FLOOR]
    assert {arm: row.best for arm, row in rows.items() if row.best} == {
        "monolith": ["fd"], "top-2": ["diversity"], "oracle": ["kid", "agreement", "recall"]
    }, "equal values have no verdict, and the density of the monolith exceeds that of real images"  # fmt: skip


def test_arms_that_read_the_same_are_both_best_where_both_have_a_verdict():
    metrics = content().metrics
    metrics["arms"]["top-2"]["kid"] = metrics["arms"]["oracle"]["kid"] + 1e-7
    rows = page.table(metrics)
    assert "kid" in rows["top-2"].best and "kid" in rows["oracle"].best
    metrics["differences"]["top-2"]["kid@own"]["verdict"] = "cannot tell"
    rows = page.table(metrics)
    assert "kid" not in rows["top-2"].best and "kid" in rows["oracle"].best
    metrics["differences"]["top-1"]["fd@own"]["verdict"] = "cannot tell"
    assert "fd" not in page.table(metrics)["monolith"].best, "the monolith is best if all others are worse"


def test_samples_that_the_classifier_takes_by_chance_are_never_best():
    noise = content().metrics
    noise["intervals"]["oracle"]["agreement@own"] = [0.105, 0.135]
    noise["arms"]["oracle"]["agreement"] = 0.12
    rows = page.table(noise)
    assert rows["oracle"].best == [] and rows["monolith"].best == ["fd"]
    assert set(rows["oracle"].verdicts.values()) == {""}


def test_what_speaks_against_the_figures_comes_before_them():
    given = bare(content())
    assert "Reasons to doubt these figures" not in page.render(given)
    given.metrics.update(warnings=["precision <exceeds> that of real images", "experts saw less"])
    text = Page(page.render(given)).text
    said = "Reasons to doubt these figures Precision <exceeds> that of real images. Experts saw less."
    assert said in text and text.index(said) < text.index("31.9")


def test_a_distance_that_is_no_number_is_shown_and_never_best_and_one_that_rounds_to_nothing_has_no_sign():
    metrics = content().metrics
    metrics["arms"]["monolith"]["fd"], metrics["floor"]["kid"] = None, -1e-9
    rows = page.table(metrics)
    assert rows["monolith"].cells["fd"] == "not finite" and rows[page.FLOOR].cells["kid"] == "0.00000"
    assert "fd" not in [*rows["monolith"].best, *rows["top-1"].best]


def test_figures_that_are_not_finite_are_null_with_a_reason_and_the_page_says_so():
    given = content()
    figures = {key: {"metric": "fd", "value": None, "left_out": None} for key in ("fd-8@own", "fd-8@other")}
    lost = comparisons.summarise({"own": comparisons.ArmComparison({"a": figures, "b": figures}, figures, 8, 4)})
    places: list[str] = []
    stored = atomic.finite_json(lost, places)
    assert "arms.a.fd" in places and "floor.fd-8@other" in places and stored["arms"]["b"]["fd"] is None
    assert stored["intervals"]["a"]["fd-8@own"] == [None, None]
    assert stored["differences"]["b"]["fd-8@own"]["low"] is None
    given.metrics["diagnostics"]["top-1"]["disagreement"][3] = None
    given.metrics["diagnostics"]["top-1"] |= {"entropy": [None] * STEPS, "refinement_gap": None}
    given.metrics["intervals"]["top-1"] = dict.fromkeys(given.metrics["intervals"]["top-1"], [None, None])
    given.metrics["arms"]["top-1"] = dict.fromkeys(given.metrics["arms"]["top-1"]) | {"images": 8, "train_flops": 9}
    assert page.render(given).count("not finite") > 5


def test_missing_experts_are_named_on_top_and_at_their_clusters():
    partial = dataclasses.replace(bare(content()), clusters=content().clusters)
    assert "Some experts are missing" not in page.render(partial) and "missing" not in Page(page.render(partial)).text
    partial.metrics.update(missing_experts=["train/expert-02"], remark="3 of 4 experts, without train/expert-02")
    text = Page(page.render(partial)).text
    said = "Some experts are missing. Everything on this page was made with 3 of 4 experts, without train/expert-02."
    assert said in text and text.index(said) < text.index("31.9")
    assert re.findall(r"Expert (\d) [\d,]+ images, [\d.]+%, missing from the results", text) == ["2"]
    assert "FLOPs count the experts that are here and the router" in text


def test_a_metric_that_is_left_out_is_named_with_the_reason():
    given = bare(content(lacks=["agreement"]))
    reason = {"agreement": "compares classes, and these images have none"}
    given.metrics.update(classifier=None, unavailable_metrics=reason)
    text = Page(page.render(given)).text
    assert "Classifier agrees is left out: it compares classes, and these images have none." in text
    assert "Classifier agrees:" not in text and "The classifier is a second network" not in text
    assert "to tell how far an image is rotated" in text


@pytest.mark.parametrize(("experts", "drawn", "more"), [(2, 2, 0), (8, 8, 0), (9, 7, 2), (12, 7, 5)])
def test_the_drawing_of_the_method_shows_clusters_experts_and_samples(experts, drawn, more):
    found = content(experts=experts)
    html = page.render(found)
    drawing = html[html.index('<svg class="method"') : html.index("</svg>")]
    assert drawing.count(">expert ") == drawn and drawing.count('href="data:image/png;base64,') == drawn + 1
    assert (f"and {more} more clusters" in drawing) == bool(more)
    total = sum(cluster.size for cluster in found.clusters)
    assert f'aria-label="{total:,} training images form {experts} clusters.' in drawing
    assert 'class="absent"' not in drawing


def test_the_drawing_marks_a_missing_expert_and_does_without_pictures():
    found = content(experts=3)
    found.metrics["missing_experts"] = ["train/expert-01"]
    clusters = [dataclasses.replace(cluster, images={}) for cluster in found.clusters]
    html = page.render(dataclasses.replace(found, clusters=clusters, usage={}))
    drawing = html[html.index('<svg class="method"') : html.index("</svg>")]
    assert drawing.count('class="absent"') == 1 and "href=" not in drawing


def test_one_cluster_has_no_drawing_of_a_method():
    assert '<svg class="method"' not in page.render(content(experts=1))
