from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from hpcddm.evaluation.report import plots

TIMES = [1 - step / 20 for step in range(20)]


def curve(points, end):
    return [(1024 * (step + 1), end + 1 / (step + 1)) for step in range(points)]


def texts(svg):
    return ["".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter("text")]


def drawn():
    """One plot of each kind, drawn anew."""
    shares = np.random.default_rng(0).dirichlet(np.ones(4), 20)
    return {
        "losses": plots.losses("losses", {"train/monolith": curve(50, 0.1), "train/expert-00": curve(12, 0.2)}),
        "router": plots.router_accuracy("router", [0.1, 0.9], {"with condition": [1.0, 0.6]}, experts=4),
        "usage": plots.usage("usage", shares, TIMES),
        "entropy": plots.by_time("entropy", TIMES, {"top-1": shares[:, 0], "full": shares[:, 1]}, "entropy"),
    }


@pytest.mark.parametrize(
    ("name", "expert", "label"),
    [
        ("expert-2", 2, "expert 2"), ("train/expert-12", 12, "expert 12"), ("monolith", None, "monolith"),
        ("train/monolith", None, "monolith"), ("evaluators/classifier", None, "classifier"), ("top-1", None, "top-1"),
        ("router/all", None, "router"), ("autoencoder/all", None, "autoencoder"),
    ],
)  # fmt: skip
def test_names_of_arms_and_units(name, expert, label):
    assert plots.expert_of(name) == expert
    assert plots.label_of(name) == label


def test_svg_is_described_and_takes_the_pages_looks():
    for svg in drawn().values():
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img" and len(root.get("aria-label")) > 20 and "currentColor" in svg
        for unwanted in ("<style", "font-family", "http", "#01010", "#02020", "#03030", "#04040"):
            assert unwanted not in svg


def test_svg_is_reproducible_whatever_a_users_matplotlibrc_says():
    before, expected = dict(matplotlib.rcParams), drawn()
    assert dict(matplotlib.rcParams) == before, "settings do not leak"
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "svg.fonttype": "path"}):
        assert drawn() == expected


@pytest.mark.parametrize(
    "points", [[(1024, 0.5)], [(1024, 0.5), (2048, 0.5)], [(1024, float("nan"))], [(10, 1.0), (20, float("inf"))]]
)
def test_short_and_broken_curves_can_be_drawn(points):
    assert "monolith" in texts(plots.losses("losses", {"train/monolith": points}))


def test_long_curves_are_thinned_and_keep_first_point_and_end():
    long = [(step + 1, 1 / (step + 1)) for step in range(50_000)]
    thin = plots._averaged(long)
    assert len(thin) <= plots.MAX_POINTS and (np.diff(thin[:, 0]) > 0).all()
    assert thin[0].tolist() == [1, 1] and thin[-1, 0] > 45_000
