"""Tables in the layout of the released ones: search_counts/*_search_counts.json and *_evaluations/*.json."""

import json
from pathlib import Path

import numpy as np
import pytest

from hpcddm.concepts.published_bins import CLASSIFICATION, TEXT_TO_IMAGE, Figure, paired, published_fit

TABLES = Path(__file__).parent / "published"


def table(name):
    counts = json.loads((TABLES / f"{name}_search_counts.json").read_text())
    return counts, json.loads((TABLES / f"{name}_results.json").read_text())["modelA"]["classwise"]


def test_classes_are_binned_as_published():
    """Expected values by pandas 3.1.1 (cut by the edges, mean and population deviation) and scipy 1.17.1 (pearsonr)."""
    fit = published_fit(*paired(*table("classes")), CLASSIFICATION)
    assert [entry.concepts for entry in fit.bins] == [6, 1, 2, 3, 3, 3, 2, 3, 2, 3, 1, 1]
    means = [5.75, 14.0, 13.5, 24.0, 30.0, 35.333333, 41.0, 49.333333, 52.0, 66.0, 64.0, 90.0]
    np.testing.assert_allclose([entry.mean for entry in fit.bins], means, atol=1e-6)
    np.testing.assert_allclose([entry.deviation for entry in fit.bins[:3]], [4.356509, 0.0, 4.5], atol=1e-6)
    assert [entry.is_drawn for entry in fit.bins] == [False, *[True] * 10, False]
    assert (fit.bins[0].edge, fit.bins[1].edge, fit.bins[-1].edge) == pytest.approx((1, 2100 ** (1 / 11), 2100))
    assert (fit.r_of_bin_means, fit.p) == pytest.approx((0.9893405363945221, 5.576392894983844e-08), rel=1e-9)
    assert fit.significant


def test_concepts_of_prompts_are_binned_as_published():
    """The same, without the empty bin; 'fox' is in five prompts only, the others not in both tables."""
    frequencies, scores = paired(*table("prompts"), TEXT_TO_IMAGE)
    assert len(scores) == 11
    fit = published_fit(frequencies, scores, TEXT_TO_IMAGE)
    assert [entry.concepts for entry in fit.bins] == [1, 1, 1, 2, 0, 1, 5]
    assert [entry.edge for entry in fit.bins] == pytest.approx([1, 10, 100, 1e3, 1e4, 1e5, 1e6])
    assert fit.bins[3].mean == pytest.approx(23.540476, abs=1e-6) and fit.bins[4].mean is None
    assert [entry.is_drawn for entry in fit.bins] == [False, False, False, True, True, True, True]
    assert (fit.r_of_bin_means, fit.p) == pytest.approx((0.9669328529651833, 0.16417141668479152), rel=1e-9)
    assert not fit.significant


def test_by_hand():
    """Three edges, 1, 10 and 100: 0 and 1 share the first bin, and the greatest is in the last."""
    three = Figure(edges=3, drawn=slice(None), least_scores=1, is_complete=True)
    fit = published_fit(np.array([0, 1, 2, 9, 11, 100]), np.array([1.0, 3.0, 5.0, 7.0, 4.0, 8.0]), three)
    assert [(entry.concepts, entry.mean) for entry in fit.bins] == [(2, 2.0), (2, 6.0), (2, 6.0)]
    # r of (0, 1, 2) and (2, 6, 6): 4 / sqrt(2 * 32 / 3)
    assert fit.r_of_bin_means == pytest.approx(4 / np.sqrt(2 * 32 / 3))


def test_a_class_without_a_result_is_named():
    with pytest.raises(ValueError, match="1 concepts have a count and no result: airplane"):
        paired({"airplane": 3, "cat": 4}, {"plane": 1.0, "cat": 2.0})


@pytest.mark.parametrize("frequencies, scores", [([], []), ([1, 2], [np.nan, 1.0]), ([-1, 2], [1.0, 1.0])])
def test_what_has_no_bins_is_refused(frequencies, scores):
    with pytest.raises(ValueError, match="at least one concept"):
        published_fit(np.array(frequencies, float), np.array(scores, float))


def test_without_three_different_bins_there_is_no_r():
    for frequencies in ([0, 0, 0, 1], [5, 5, 5, 5], [1, 2, 3, 1000]):
        fit = published_fit(np.array(frequencies), np.array([1.0, 1.0, 1.0, 1.0]))
        assert (fit.r_of_bin_means, fit.p, fit.significant) == (None, None, False)
    json.dumps(fit.as_json(), allow_nan=False)
