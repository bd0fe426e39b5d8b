"""The report's part on decisions."""

import dataclasses

import numpy as np
import pytest

from hpcddm.evaluation.report import page
from hpcddm.evaluation.report.decisions_page import stacked_paths, verdict
from hpcddm.sampling.decisions import Decisions
from tests.evaluation.report.test_page import STEPS, content, require_whole


def decided(experts=4, size=28, channels=1, samples=20):
    """Decisions of random networks."""
    random = np.random.default_rng(0)
    posterior = random.dirichlet(np.ones(experts), (samples, STEPS))

    def pictures(*shape):
        return random.integers(0, 256, (*shape, size, size, channels), dtype=np.uint8)

    alone = {expert: pictures(samples) for expert in range(experts)}
    times = [1 - step / STEPS for step in range(STEPS)]
    weights = np.eye(experts)[posterior.argmax(2)]
    return Decisions(
        "top-1", times, [1, 3, 6, 8, 11, 13, 16, 18], posterior, weights, pictures(samples, 8), pictures(samples), alone
    )


@pytest.mark.parametrize("experts, size, channels", [(2, 28, 1), (8, 64, 3)])
def test_every_sample_is_there_with_its_estimates_and_what_experts_draw(experts, size, channels):
    found = content(experts=experts, size=size, channels=channels)
    count = len(found.gallery_texts)
    plain, own = (
        page.render(dataclasses.replace(found, decisions=decisions))
        for decisions in (None, decided(experts, size, channels, count))
    )
    added = len(require_whole(own).all("img")) - len(require_whole(plain).all("img"))
    assert added == count * (1 + 1 + experts)
    assert len(own) - len(plain) < 2_000_000
    radios = [one for one in require_whole(own).all("input") if one["type"] == "radio"]
    assert len(radios) == len(set(found.gallery_texts)) and sum("checked" in one for one in radios) == 1
    labels = {one["for"] for one in require_whole(own).all("label")}
    assert labels == {one["id"] for one in radios}
    assert "Posterior by class" in own and "<script" not in own


def test_captions_and_no_condition_have_no_table_of_classes():
    for kind, text in (("caption", "a hat"), ("", "")):
        found = content(experts=2)
        texts = [text] * len(found.gallery_texts)
        given = dataclasses.replace(
            found, asked_for=kind, gallery_texts=texts, decisions=decided(2, samples=len(texts))
        )
        assert "Posterior by class" not in page.render(given)


@pytest.mark.parametrize(
    "chosen, expected",
    [
        ([0, 0, 1, 1], "expert 1, the most likely one from t = 0.50 on (70 % at the end)"),
        ([1, 0, 1, 0], "expert 0, the most likely one from t = 0.25 on (70 % at the end)"),
        ([1, 1, 1, 1], "expert 1, the most likely one from t = 1.00 on (70 % at the end)"),
    ],
)
def test_the_verdict_names_the_expert_of_the_end_and_since_when(chosen, expected):
    posterior = np.where(np.eye(2)[chosen] == 1, 0.7, 0.3)
    assert verdict(posterior, [1.0, 0.75, 0.5, 0.25]) == expected


def test_areas_fill_the_bar_and_an_expert_without_a_share_has_none():
    first, second, third = stacked_paths(np.array([[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]]), 0.0, 8.0)
    assert first == "M0 0.00V0.00H1V0.00H2V4.00H1V2.00H0Z"
    assert second == "M0 2.00V2.00H1V4.00H2V8.00H1V8.00H0Z"
    assert third == ""
