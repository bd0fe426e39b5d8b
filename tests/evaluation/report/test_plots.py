import subprocess
import sys
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
        "router": plots.by_time("router", [0.1, 0.9], {"with condition": [1.0, 0.6]}, "right", True, {"chance": 0.25}),
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


def test_no_global_figures():
    code = "import sys; from hpcddm.evaluation.report import page; assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_losses_label_every_line():
    names = {"train/monolith": curve(50, 0.1)} | {f"train/expert-{index:02d}": curve(9, 0.2) for index in range(16)}
    assert {"monolith", *(f"expert {index}" for index in range(16))} <= set(texts(plots.losses("losses", names)))


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


@pytest.mark.parametrize(("low", "high"), [(1024, 2e5), (0.1, 1.4), (0.15, 0.2), (0.101, 0.103), (1, 1e8)])
def test_logarithmic_axes_have_a_readable_number_of_ticks(low, high):
    assert 2 <= sum(low <= value <= high for value in plots.round_values(low, high)) <= 12
    assert plots.round_values(1024, 1024) == [1024], "one value has one tick"


def test_levels_are_named():
    assert "chance" in texts(drawn()["router"])


def test_areas_with_room_carry_their_experts_number():
    shares = np.tile([0.5, 0.02, 0.48], (20, 1))
    assert [text for text in texts(plots.usage("usage", shares, TIMES)) if text in "012"] == ["0", "2"]


def test_steps_are_drawn_as_long_as_they_are():
    """With the times shifted the same shares fill other areas: the first of two steps reaches from 1 to 0.25."""
    shares = np.array([[1.0, 0.0], [0.0, 1.0]])
    even, shifted = (plots.usage("usage", shares, [1.0, middle]) for middle in (0.5, 0.25))
    assert even != shifted and "0" in texts(shifted)


def test_what_is_said_of_a_line_is_in_the_order_of_the_noise():
    said = ElementTree.fromstring(plots.by_time("x", [0.9, 0.1], {"full": [2.0, 1.0]}, "nats", levels={"all": 3.0}))
    assert said.get("aria-label") == "Nats from little to much noise: full from 1 to 2; all: 3."


def test_many_arms_and_sixteen_experts_look_different():
    assert len({str(plots._line_style(f"top-{arm}", arm)) for arm in range(6)}) == 6
    assert len({plots.swatch(expert) for expert in range(16)}) == 16
    assert len({str(plots._line_style(f"expert-{expert}", 0)) for expert in range(16)}) == 16
