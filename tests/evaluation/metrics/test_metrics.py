"""The contract of a metric, for every file of the room, and what a new file does."""

import dataclasses
import json

import numpy as np
import pytest

from hpcddm.commands.results_table import print_results_table
from hpcddm.commands.sweep_table import print_sweep_table
from hpcddm.config import variants
from hpcddm.evaluation import metrics
from hpcddm.evaluation.metrics import all_metrics, kid_subsets, metrics_for
from hpcddm.evaluation.metrics.metric_inputs import ImageSet, MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.report import page
from hpcddm.evaluation.sweep_results import plot
from hpcddm.evaluation.sweep_results.seed_statistics import statistics_over_seeds, write_seeds
from hpcddm.evaluation.sweep_results.setting_results import SettingResult, write_csv
from tests.evaluation.metrics.sets import inputs_of
from tests.evaluation.report.test_page import Page, bare, content

RNG = np.random.default_rng(0)
INPUTS = inputs_of(*(RNG.standard_normal((1000, 3)) + shift for shift in (0.3, 0, 0)))

NEW = """
from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.need import Need

class Brightness(Metric):
    '''Mean of all features.'''

    title = "mean feature"
    explanation = "the mean of all features"
    better = Better.LOWER
    format = ".3f"
    needs = frozenset({Need.FEATURES})
    order = 21
    is_column = True
    is_headline = True

    def compute(self, inputs):
        return float(inputs.samples.features.mean())
"""


@pytest.mark.parametrize("metric", all_metrics(), ids=lambda metric: metric.key)
def test_a_metric_reads_nothing_but_what_it_says_it_needs(metric, monkeypatch):
    monkeypatch.setattr(kid_subsets, "SUBSETS", 3)
    value, left_out = metric.compute(INPUTS), metric.left_out(INPUTS)
    assert isinstance(value, float) and np.isfinite([value, *left_out]).all() and left_out.shape == (10,)
    nothing = {part.value: None for part in set(Need) - metric.needs}
    sets = [dataclasses.replace(images, **nothing) for images in (INPUTS.samples, INPUTS.real, INPUTS.train)]
    assert all(images.gives() == metric.needs for images in sets)
    bare_inputs = MetricInputs(*sets)
    assert metric.compute(bare_inputs) == value and (metric.left_out(bare_inputs) == left_out).all()
    with pytest.raises(ValueError, match="the images lack .*, which this metric needs"):
        metric.compute(MetricInputs(ImageSet(), ImageSet(), ImageSet()))


def test_full_keys_tell_values_apart_that_cannot_be_compared():
    def keys(images):
        return " ".join(metric.full_key("own", images) for metric in all_metrics() if Need.FEATURES in metric.needs)

    assert keys(50_000) == (
        "fd@own fd_infinity-15x5000@own fd_ratio@own kid-10x5000@own kid_subsets-100x1000@own mind-5000@own"
        " precision-10000@own recall-10000@own adm_precision-10000x50000@own adm_recall-10000x50000@own"
        " density-10000@own coverage-10000@own auth_pct-50000@own diversity@own"
    )
    assert "fd_infinity-15x1000@own" in keys(2000) and "kid@own" in keys(10_000) and "mind-2000@own" in keys(2000)


def test_an_evaluator_has_the_metrics_for_what_it_gives_of_enough_images():
    def keys(gives, images):
        return {metric.key for metric in metrics_for(gives, images)}

    assert keys({Need.LABELS, Need.AGREED}, 100) == {"agreement"} and keys({Need.SPREAD}, 100) == {"lpips_diversity"}
    everything = set(Need)
    assert keys(everything, 10_001) - keys(everything, 10_000) == {"adm_precision", "adm_recall"}
    assert keys(everything, 1000) - keys(everything, 999) == {"kid_subsets"}
    assert "precision" not in keys(everything, 5) and "precision" in keys(everything, 6)
    assert keys(everything, 1) == set()


def test_what_ranks_arms_is_the_kernel_distance_where_a_covariance_is_poor():
    assert [metrics.leading(images, 64).key for images in (127, 128)] == ["kid", "fd"]


@pytest.fixture
def new_metric(tmp_path, monkeypatch):
    """A file of a metric in a folder of its own."""
    (tmp_path / "evaluation" / "metrics").mkdir(parents=True)
    (tmp_path / "evaluation" / "metrics" / "brightness.py").write_text(NEW)
    monkeypatch.setenv(variants.VARIANTS_VARIABLE, str(tmp_path))
    all_metrics.cache_clear()
    yield next(metric for metric in all_metrics() if metric.key == "brightness")
    all_metrics.cache_clear()


def test_a_new_file_is_measured_and_shown_everywhere(new_metric, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kid_subsets, "SUBSETS", 3)
    measured = {metric.key: metric.compute(INPUTS) for metric in all_metrics()} | {"images": 1000}
    assert list(measured)[3:6] == ["kid", "brightness", "kid_subsets"]
    assert measured["brightness"] == INPUTS.samples.features.mean() and json.dumps(measured)
    figures, floor = (measured | {"train_flops": 10**9, "brightness": value} for value in (0.123, 0.045))
    given = bare(content())
    intervals = {"monolith": {}, "top-1": {}, "floor": {"brightness@own": [0.01, 0.08]}}
    given.metrics.update(arms={"monolith": figures, "top-1": figures}, floor=floor | {"brightness@own": 0.045})
    given.metrics.update(intervals=intervals, differences={"top-1": {"brightness@own": {"verdict": "better"}}})
    text = Page(page.render(given)).text
    assert "KID Mean feature Classifier agrees" in text and "Mean feature: the mean of all features; lower" in text
    assert "0.123" in text and "brightness@own 0.045 [0.010, 0.080]" in text
    assert "brightness" in page.table(given.metrics)["top-1"].best
    print_results_table({"arms": {"top-1": figures}, "floor": floor, "leading_metric": "fd", "few_images": {}})
    said = capsys.readouterr().out
    assert ", KID, mean feature;" in said and "0.123" in said and "feature" in said
    rows = []
    for seed in (1, 2):
        arms = {"top-1": figures | {"brightness": seed}, "floor": floor}
        rows.append(SettingResult(f"seed={seed}", {"seed": seed}, arms, "complete"))
    write_csv(rows, tmp_path / "table.csv")
    write_seeds(statistics_over_seeds(rows), tmp_path / "seeds.csv")
    assert "kid,brightness,kid_subsets" in (tmp_path / "table.csv").read_text()
    assert "brightness,brightness_sd" in (tmp_path / "seeds.csv").read_text()
    monkeypatch.setenv("COLUMNS", "400")
    print_sweep_table(rows)
    assert "1.500 +- 0.707" in capsys.readouterr().out
    print_sweep_table(rows[:1])
    said = capsys.readouterr().out
    assert "FD / KID / mean feature, by arm" in said and " / 1.000" in said
    for draw, keys, count in ((plot._lines, "seed", 9), (plot._bars, ["seed"], 5)):
        figure = draw(rows, keys)
        titles = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
        assert "mean feature  (lower is better)" in titles and len(titles) == count
